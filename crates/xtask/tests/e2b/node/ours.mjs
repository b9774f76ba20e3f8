// What the programs share: requests of our own to the server, its clock, and boxes that freeze for being idle.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

const url = process.env.ICEBOX_URL
const key = process.env.E2B_API_KEY

export async function own(method, path, body) {
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) })
  return answer.json()
}

export const advance = (seconds) => own('POST', '/v1/test/clock', { advanceSec: seconds })

export const statusOf = async (box) => (await own('GET', `/v1/boxes/${box.sandboxId}`)).status

// Lets it freeze for being idle. A stream that its client left a moment ago is still a call until the server sees that.
export async function idle(box) {
  for (let n = 0; n < 200; n++) {
    const { freeze } = await own('GET', `/v1/boxes/${box.sandboxId}`)
    if (freeze?.at) break
    await sleep(20)
  }
  // Background commands hold it for an hour after its last use.
  await advance(3601)
  assert.equal(await statusOf(box), 'frozen')
}

// Things that come one after the other, and waiting until one is as wanted.
export class Queue {
  #items = []
  #more = () => {}
  put = (item) => {
    this.#items.push(item)
    this.#more()
  }
  async until(wanted) {
    const late = AbortSignal.timeout(30_000)
    while (!this.#items.some(wanted)) {
      late.throwIfAborted()
      await new Promise((resolve) => {
        this.#more = resolve
        late.onabort = resolve
      })
    }
    return this.#items.splice(0)
  }
}

export async function runParts(parts) {
  for (const name of process.env.E2B_RUN.split(',')) {
    await parts[name]()
    console.log(`${name}: ok`)
  }
}
