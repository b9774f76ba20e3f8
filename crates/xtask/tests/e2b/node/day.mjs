// A day with the JavaScript SDK: commands, lists, pause and resume, files, an idle freeze in the middle.
import assert from 'node:assert/strict'
import { advance, runParts, statusOf } from './ours.mjs'

const { Sandbox, CommandExitError } = await import(process.env.E2B_PACKAGE)
const parts = {
  async commands() {
    const box = await Sandbox.create({ timeoutMs: 3_600_000, envs: { COLOUR: 'blue' } })
    try {
      assert.ok(await box.isRunning())
      const result = await box.commands.run('echo $COLOUR; echo oops >&2')
      assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['blue\n', 'oops\n', 0])
      await assert.rejects(box.commands.run('exit 3'), CommandExitError)
      const run = await box.commands.run('read line; echo got $line', { background: true, stdin: true })
      await box.commands.sendStdin(run.pid, 'word\n')
      assert.equal((await run.wait()).stdout, 'got word\n')
      const long = await box.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
      assert.ok(await long.kill())
    } finally {
      assert.ok(await box.kill())
    }
    assert.ok(!(await box.isRunning()))
  },

  async pauses() {
    const box = await Sandbox.create({ timeoutMs: 300_000, metadata: { part: 'a b&c' } })
    await box.commands.run('echo kept > kept')
    const pause = box.pause ?? box.betaPause
    assert.ok(await pause.call(box))
    assert.equal((await box.getInfo()).state, 'paused')
    const pages = Sandbox.list({ query: { metadata: { part: 'a b&c' }, state: ['paused'] } })
    assert.deepEqual((await pages.nextItems()).map((info) => info.sandboxId), [box.sandboxId])
    const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 300_000 })
    assert.equal((await again.commands.run('cat kept')).stdout, 'kept\n')
    assert.ok(await again.kill())
  },

  async idles() {
    const box = await Sandbox.create({ timeoutMs: 4 * 3_600_000 })
    await box.commands.run('echo before > before')
    await advance(3600)
    assert.equal(await statusOf(box), 'frozen')
    assert.equal((await box.getInfo()).state, 'running')
    assert.equal((await box.commands.run('cat before')).stdout, 'before\n')
    assert.ok(await box.kill())
  },

  async forks() {
    const box = await Sandbox.create({ timeoutMs: 600_000 })
    const boxes = [box]
    try {
      const count = 'while :; do n=$((n + 1)); echo $n >/tmp/new && mv /tmp/new /tmp/n; sleep 0.02; done'
      await box.commands.run(count, { background: true, timeoutMs: 0 })
      const counted = async (it, over) => {
        const until = `until [ "$(cat /tmp/n 2>/dev/null || echo 0)" -gt ${over} ]; do sleep 0.02; done; cat /tmp/n`
        return Number((await it.commands.run(until)).stdout)
      }
      const before = await counted(box, 10)
      const snapshot = await box.createSnapshot({ name: 'counting' })
      boxes.push(await Sandbox.create(snapshot.snapshotId, { timeoutMs: 600_000 }))
      boxes.push(...(await box.fork({ count: 2, timeoutMs: 600_000 })))
      assert.equal(new Set(boxes.map((it) => it.sandboxId)).size, 4)
      for (const it of boxes) await counted(it, before)
      const listed = await box.listSnapshots().nextItems()
      assert.deepEqual(listed.map((it) => it.snapshotId), [snapshot.snapshotId])
      assert.ok(await Sandbox.deleteSnapshot(snapshot.snapshotId))
      assert.ok(!(await Sandbox.deleteSnapshot(snapshot.snapshotId)))
    } finally {
      for (const it of boxes) assert.ok(await it.kill())
    }
  },

  async files() {
    const box = await Sandbox.create({ timeoutMs: 600_000 })
    try {
      await box.files.write('notes/a.txt', 'hello')
      assert.equal(await box.files.read('notes/a.txt'), 'hello')
      assert.deepEqual((await box.files.list('notes')).map((entry) => entry.name), ['a.txt'])
      const link = await fetch(await box.downloadUrl('notes/a.txt'))
      assert.equal(await link.text(), 'hello')
    } finally {
      assert.ok(await box.kill())
    }
  },
}

await runParts(parts)
