// Graphile Worker, by the preset of its page on performance. Jobs of tenants have a queue each: one runs at a time.
import { main, database, payload, ready, handled, execute, counting, inParts, load, version } from './adapter.mjs'
const pg = load('pg')
const graphile = load('graphile-worker')
const NAME = 'peer_graphile'
const CONCURRENCY = 24
const preset = {
  worker: {
    connectionString: database(NAME),
    concurrentJobs: CONCURRENCY,
    maxPoolSize: CONCURRENCY + 1,
    logger: new graphile.Logger(() => () => {}),
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0
  }
}
let utils

async function many (number, more) {
  utils = await graphile.makeWorkerUtils({ preset })
  const seconds = await inParts(number, 10000, (part) =>
    utils.addJobs(part.map((n) => ({ identifier: 'noop', payload: payload(n), ...more(n) }))))
  await utils.release()
  return seconds
}

main({
  settings: `concurrentJobs=${CONCURRENCY}, localQueue.size=500, completeJobBatchDelay=0; addJobs of 10,000`,
  versions: () => ({ 'graphile-worker': version('graphile-worker'), pg: version('pg'), node: process.version }),
  async setup () {
    await execute(pg, NAME, 'drop schema if exists graphile_worker cascade')
    await graphile.runMigrations({ preset })
  },
  reset: () => execute(pg, NAME, 'truncate graphile_worker._private_jobs, graphile_worker._private_job_queues cascade'),
  async open () { utils = await graphile.makeWorkerUtils({ preset }) },
  close: () => utils.release(),
  enqueue: (job) => utils.addJob('noop', job),
  bulk: (number) => many(number, () => ({})),
  bulkTenants: (number, tenants) => many(number, (n) => ({ queueName: `tenant-${n % tenants}` })),
  pending: counting(pg, NAME, 'select count(*) from graphile_worker._private_jobs'),
  async work () {
    ready()
    const runner = await graphile.run({ preset, taskList: { noop: async (job) => { handled(job.seq) } } })
    await runner.promise
  }
})
