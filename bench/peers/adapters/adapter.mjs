// The twin of adapter.py for Node.js: the same sub-commands and output.
import fs from 'node:fs'
import path from 'node:path'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const POSTGRES = process.env.PEERS_POSTGRES ?? 'postgresql://postgres@127.0.0.1:5432'
export const LIMITED = process.env.PEERS_LIMITED === '1'
export const RUNNING = 10
const WARM_UP = 20
const PADDING = 'x'.repeat(80)
export const payload = (n) => ({ seq: n, pad: PADDING })
export const database = (name) => `${POSTGRES}/${name}`

// The peer's packages are in a folder of their own.
const folder = path.resolve(process.env.PEERS_PACKAGES ?? '.')
export const load = createRequire(path.join(folder, 'package.json'))
export const loadModule = (file) => import(pathToFileURL(path.join(folder, 'node_modules', file)).href)
export const version = (name) =>
  JSON.parse(fs.readFileSync(path.join(folder, 'node_modules', name, 'package.json'))).version

const now = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n
const file = process.env.PEERS_SEEN ? fs.openSync(process.env.PEERS_SEEN, 'a') : null
export function handled (n) { if (file !== null) fs.writeSync(file, `${n} ${now()}\n`) }
export function ready () {
  fs.writeSync(1, 'READY\n')
  fs.readSync(0, Buffer.alloc(1))
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const print = (result) => fs.writeSync(1, JSON.stringify(result) + '\n')

export async function execute (pg, name, sql) {
  const client = new pg.Client({ connectionString: database(name) })
  await client.connect()
  await client.query(sql)
  await client.end()
}

export function counting (pg, name, sql) {
  let client
  return async () => {
    if (!client) { client = new pg.Client({ connectionString: database(name) }); await client.connect() }
    return Number(Object.values((await client.query(sql)).rows[0])[0])
  }
}

export async function inParts (number, size, insert) {
  const start = performance.now()
  for (let first = 0; first < number; first += size) {
    const part = []
    for (let n = first; n < Math.min(number, first + size); n++) part.push(n)
    await insert(part)
  }
  return (performance.now() - start) / 1e3
}

async function one (peer, number) {
  await peer.open()
  for (let n = 0; n < WARM_UP; n++) await peer.enqueue(payload(n))
  const took = []
  const start = performance.now()
  for (let n = 0; n < number; n++) {
    const before = performance.now()
    await peer.enqueue(payload(n))
    took.push(performance.now() - before)
  }
  const seconds = (performance.now() - start) / 1e3
  took.sort((a, b) => a - b)
  await peer.close()
  return { seconds, p50_ms: took[number >> 1], p99_ms: took[Math.floor(number * 0.99)] }
}

async function pace (peer, number, gap) {
  await peer.open()
  const calls = {}
  const start = performance.now() + 200
  for (let n = 0; n < number; n++) {
    await sleep(Math.max(0, start + n * gap - performance.now()))
    const before = now()
    await peer.enqueue(payload(n))
    calls[n] = [Number(before), Number(now())]
  }
  await peer.close()
  return { calls }
}

async function wait (peer) {
  await peer.pending()
  fs.writeSync(1, 'WATCHING\n')
  let first = 0; let start = performance.now(); let left
  while ((left = await peer.pending()) > 0) {
    if (left >= first) { first = left; start = performance.now(); await sleep(50); continue }
    await sleep(Math.min(500, Math.max(5, left * (performance.now() - start) / (first - left) / 4)))
  }
  fs.writeSync(1, `DONE ${now()}\n`)
}

export async function main (peer) {
  const [command, ...given] = process.argv.slice(2)
  const [number, other] = given.map(Number)
  if (command === 'work') return peer.work()
  if (command === 'facts') print({ versions: peer.versions(), settings: peer.settings })
  else if (command === 'setup' || command === 'reset') { await peer[command](); print({}) }
  else if (command === 'one') print(await one(peer, number))
  else if (command === 'pace') print(await pace(peer, number, other))
  else if (command === 'bulk') print({ seconds: await peer.bulk(number) })
  else if (command === 'tenants') print({ seconds: await peer.bulkTenants(number, other) })
  else if (command === 'wait') await wait(peer)
  else throw new Error(`unknown sub-command ${command}`)
  process.exit(0)
}
