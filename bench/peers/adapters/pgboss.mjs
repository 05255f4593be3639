// pg-boss: batches, fetched again at once while they are full, and LISTEN. Jobs of tenants have a group each, of 10.
import { main, database, payload, ready, handled, execute, counting, inParts, load, loadModule, version, LIMITED, RUNNING } from './adapter.mjs'
const pg = load('pg')
const { PgBoss } = await loadModule('pg-boss/dist/index.js')
const NAME = 'peer_pgboss'
const BATCH = 500
const LOCAL = 4
let boss

async function opened () {
  const made = new PgBoss({ connectionString: database(NAME), useListenNotify: true, max: 10 })
  made.on('error', (error) => console.error(error))
  await made.start()
  return made
}

async function many (number, more) {
  boss = await opened()
  const seconds = await inParts(number, 10000, (part) =>
    boss.insert('bench', part.map((n) => ({ data: payload(n), ...more(n) }))))
  await boss.stop({ graceful: false })
  return seconds
}

main({
  settings: `batchSize=${BATCH}, burstWhenBatchFull, localConcurrency=${LOCAL}, useListenNotify, pollingIntervalSeconds=0.5; insert of 10,000`,
  versions: () => ({ 'pg-boss': version('pg-boss'), pg: version('pg'), node: process.version }),
  async setup () {
    await execute(pg, NAME, 'drop schema if exists pgboss cascade')
    boss = await opened()
    await boss.createQueue('bench', { notify: true })
    await boss.stop({ graceful: false })
  },
  reset: () => execute(pg, NAME, 'truncate pgboss.job_common cascade'),
  async open () { boss = await opened() },
  close: () => boss.stop({ graceful: false }),
  enqueue: (job) => boss.send('bench', job),
  bulk: (number) => many(number, () => ({})),
  bulkTenants: (number, tenants) => many(number, (n) => ({ group: { id: `tenant-${n % tenants}` } })),
  pending: counting(pg, NAME, "select count(*) from pgboss.job where name = 'bench' and state < 'completed'"),
  async work () {
    boss = await opened()
    ready()
    await boss.work('bench', {
      batchSize: BATCH,
      burstWhenBatchFull: true,
      localConcurrency: LOCAL,
      pollingIntervalSeconds: 0.5,
      ...(LIMITED ? { groupConcurrency: RUNNING } : {})
    }, async (jobs) => { for (const job of jobs) handled(job.data.seq) })
  }
})
