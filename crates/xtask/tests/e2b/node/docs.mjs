// What the documentation of the JavaScript SDK shows, part by part, with an idle freeze in the middle of each.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { Queue, advance, idle, runParts, statusOf } from './ours.mjs'

const { Sandbox, CommandExitError, FileType, FilesystemEventType, NotFoundError, TimeoutError } = await import(
  process.env.E2B_PACKAGE
)
const url = process.env.ICEBOX_URL
const DAY = 24 * 3_600_000
const timeoutMs = DAY

async function withBox(options, act) {
  const box = await Sandbox.create({ timeoutMs, ...options })
  try {
    await act(box)
  } finally {
    assert.ok(await box.kill())
  }
  assert.ok(!(await box.isRunning()))
}

const parts = {
  sandboxes: () =>
    withBox({ envs: { COLOUR: 'blue' }, metadata: { user: 'ann' } }, async (box) => {
      const info = await box.getInfo()
      assert.equal(info.templateId, 'base')
      assert.equal(info.state, 'running')
      assert.deepEqual(info.metadata, { user: 'ann' })
      assert.equal(info.endAt - info.startedAt, DAY)
      await box.setTimeout(2 * DAY)
      await idle(box)
      const pages = Sandbox.list({ query: { metadata: { user: 'ann' }, state: ['running'] }, limit: 1 })
      assert.deepEqual((await pages.nextItems()).map((it) => it.sandboxId), [box.sandboxId])
      assert.ok(!pages.hasNext)
      assert.equal(await statusOf(box), 'frozen')
      const same = await Sandbox.connect(box.sandboxId)
      assert.equal((await same.commands.run('echo $COLOUR')).stdout, 'blue\n')
      assert.ok(box.getHost(3000).startsWith(`3000-${box.sandboxId}.`))
      await assert.rejects(Sandbox.getInfo('a'.repeat(20)), NotFoundError)
      assert.equal(await Sandbox.kill('a'.repeat(20)), false)
      await assert.rejects(Sandbox.create('nobody-made-this'), /404/)
    }),

  commands: () =>
    withBox({}, async (box) => {
      const out = new Queue()
      const counter = await box.commands.run('n=0; while sleep 0.01; do n=$((n + 1)); echo $n; done', {
        background: true,
        timeoutMs: 0,
        onStdout: out.put,
      })
      const [first] = await out.until(Boolean)
      await counter.disconnect()
      await idle(box)
      const more = new Queue()
      const again = await box.commands.connect(counter.pid, { timeoutMs: 0, onStdout: more.put })
      const [later] = await more.until(Boolean)
      assert.ok(parseInt(later) > parseInt(first))
      assert.ok((await box.commands.list()).some((it) => it.pid === counter.pid))
      assert.ok(await again.kill())
      await assert.rejects(again.wait(), CommandExitError)
      assert.equal(await box.commands.kill(counter.pid), false)
      const cat = await box.commands.run('cat', { background: true, stdin: true })
      await box.commands.sendStdin(cat.pid, 'line\n')
      await box.commands.closeStdin(cat.pid)
      assert.equal((await cat.wait()).stdout, 'line\n')
      await assert.rejects(box.commands.run('sleep 60', { timeoutMs: 1_000 }), TimeoutError)
      const root = await box.commands.run('whoami; pwd; echo $A', { user: 'root', cwd: '/tmp', envs: { A: 'b' } })
      assert.equal(root.stdout, 'root\n/tmp\nb\n')
      const runs = [0, 1, 2, 3].map((n) => box.commands.run(`echo ${n}`))
      assert.deepEqual((await Promise.all(runs)).map((it) => it.stdout), ['0\n', '1\n', '2\n', '3\n'])
    }),

  files: () =>
    withBox({}, async (box) => {
      const written = await box.files.write('docs/a.txt', 'text')
      assert.equal(written.path, '/home/user/docs/a.txt')
      await box.files.write([
        { path: 'docs/b', data: 'b' },
        { path: 'docs/c', data: new Uint8Array([0, 1]).buffer },
        { path: 'docs/d', data: new Blob(['blob']) },
      ])
      await idle(box)
      assert.equal(await box.files.read('docs/a.txt'), 'text')
      assert.deepEqual([...(await box.files.read('docs/c', { format: 'bytes' }))], [0, 1])
      assert.equal(await (await box.files.read('docs/d', { format: 'blob' })).text(), 'blob')
      const stream = await box.files.read('docs/b', { format: 'stream' })
      assert.equal(await new Response(stream).text(), 'b')
      const listed = await box.files.list('docs')
      assert.deepEqual(listed.map((it) => it.name).sort(), ['a.txt', 'b', 'c', 'd'])
      assert.equal(listed[0].type, FileType.FILE)
      assert.equal((await box.files.getInfo('docs')).type, FileType.DIR)
      assert.equal((await box.files.rename('docs/a.txt', 'docs/z.txt')).name, 'z.txt')
      assert.ok(!(await box.files.exists('docs/a.txt')))
      assert.ok(await box.files.makeDir('made'))
      assert.ok(!(await box.files.makeDir('made')))
      await box.files.remove('docs')
      await assert.rejects(box.files.read('docs/z.txt'), NotFoundError)
      const form = new FormData()
      form.append('file', new Blob(['uploaded']), 'ignored')
      const up = await fetch(await box.uploadUrl('up.txt', { useSignatureExpiration: 60_000 }), { method: 'POST', body: form })
      assert.equal(up.status, 200)
      const down = await fetch(await box.downloadUrl('up.txt', { useSignatureExpiration: 60_000 }))
      assert.equal(await down.text(), 'uploaded')
    }),

  watching: () =>
    withBox({}, async (box) => {
      await box.files.makeDir('seen')
      const events = new Queue()
      const watch = await box.files.watchDir('seen', events.put, { recursive: true, timeoutMs: 0 })
      await box.files.write('seen/a', '1')
      await events.until((event) => event.type === FilesystemEventType.WRITE && event.name === 'a')
      await watch.stop()
      await idle(box)
      const again = await box.files.watchDir('seen', events.put, { timeoutMs: 0 })
      await box.files.remove('seen/a')
      await events.until((event) => event.type === FilesystemEventType.REMOVE && event.name === 'a')
      await again.stop()
    }),

  ptys: () =>
    withBox({}, async (box) => {
      const said = new Queue()
      let heard = ''
      const hear = (data) => {
        heard += Buffer.from(data).toString()
        said.put(heard)
      }
      const pty = await box.pty.create({ rows: 24, cols: 80, onData: hear, timeoutMs: 0 })
      const type = (text) => box.pty.sendInput(pty.pid, Buffer.from(text))
      await type("held=ye''s; echo rea''dy\n")
      await said.until((all) => all.includes('ready'))
      await pty.disconnect()
      await idle(box)
      const again = await box.pty.connect(pty.pid, { onData: hear, timeoutMs: 0 })
      await box.pty.resize(pty.pid, { rows: 30, cols: 90 })
      await type("stty size; echo held=$held end''ed\n")
      await said.until((all) => all.includes('ended'))
      assert.ok(heard.includes('30 90') && heard.includes('held=yes'), heard)
      assert.ok(await box.pty.kill(pty.pid))
      await assert.rejects(again.wait(), CommandExitError)
    }),

  git: () =>
    withBox({}, async (box) => {
      await box.git.init('origin.git', { bare: true, initialBranch: 'main' })
      await box.git.configureUser('Ann', 'ann@example.com')
      await box.git.init('work', { initialBranch: 'main' })
      await box.files.write('work/README.md', '# one\n')
      assert.ok((await box.git.status('work')).hasUntracked)
      await box.git.add('work')
      await box.git.commit('work', 'first')
      await box.git.remoteAdd('work', 'origin', '/home/user/origin.git')
      await box.git.push('work', { remote: 'origin', branch: 'main' })
      await idle(box)
      await box.git.clone('/home/user/origin.git', { path: 'clone' })
      await box.git.createBranch('clone', 'topic')
      assert.equal((await box.git.branches('clone')).currentBranch, 'topic')
      assert.equal(await box.files.read('clone/README.md'), '# one\n')
    }),

  pausing: () =>
    withBox({}, async (box) => {
      const boot = async (it) => (await it.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout
      const before = await boot(box)
      await idle(box)
      assert.equal(await boot(box), before)
      const pause = (options) => (box.pause ?? box.betaPause).call(box, options)
      assert.ok(await pause())
      assert.equal(await pause(), false)
      const again = await Sandbox.connect(box.sandboxId, { timeoutMs })
      assert.equal(await boot(again), before)
      assert.ok(await pause({ keepMemory: false }))
      await again.connect({ timeoutMs })
      assert.notEqual(await boot(again), before)
      const lifecycle = { onTimeout: 'pause', autoResume: true }
      const auto = await Sandbox.create({ timeoutMs: 60_000, lifecycle })
      await advance(60)
      assert.equal((await auto.getInfo()).state, 'paused')
      assert.equal((await auto.commands.run('echo awake')).stdout, 'awake\n')
      assert.ok(await auto.kill())
    }),

  figures: () =>
    withBox({}, async (box) => {
      let samples = []
      for (let n = 0; n < 600 && samples.length === 0; n++) {
        samples = await box.getMetrics()
        if (samples.length === 0) await sleep(50)
      }
      assert.ok(samples[0].memTotal > samples[0].memUsed && samples[0].cpuCount >= 1)
      await idle(box)
      assert.deepEqual((await box.getMetrics())[0], samples[0])
      assert.equal(await statusOf(box), 'frozen')
      const { startedAt } = await box.getInfo()
      assert.deepEqual(await box.getMetrics({ end: new Date(startedAt.getTime() - DAY) }), [])
    }),

  network: () =>
    withBox({ network: { allowPublicTraffic: false } }, async (box) => {
      const serve = 'mkdir site && cd site && echo inside > index.html && exec python3 -m http.server 8000'
      await (await box.commands.run(serve, { background: true, timeoutMs: 0 })).disconnect()
      const token = box.trafficAccessToken
      const visit = async (more) => {
        const headers = { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '8000', ...more }
        const answer = await fetch(url, { headers })
        return [answer.status, await answer.text()]
      }
      const with_ = { 'e2b-traffic-access-token': token }
      for (let n = 0; n < 200 && (await visit(with_))[0] !== 200; n++) await sleep(20)
      assert.equal((await visit())[0], 403)
      await idle(box)
      assert.deepEqual(await visit(with_), [200, 'inside\n'])
    }),

  // Where the names below the domain are found; see `resolve.mjs`.
  host: () =>
    withBox({ network: { allowPublicTraffic: false } }, async (box) => {
      const serve = 'mkdir site && cd site && echo inside > index.html && exec python3 -m http.server 8000'
      await (await box.commands.run(serve, { background: true, timeoutMs: 0 })).disconnect()
      const visit = async (headers) => {
        const answer = await fetch(`https://${box.getHost(8000)}/`, { headers })
        return [answer.status, await answer.text()]
      }
      const token = { 'e2b-traffic-access-token': box.trafficAccessToken }
      for (let n = 0; n < 200 && (await visit(token))[0] !== 200; n++) await sleep(20)
      await idle(box)
      assert.deepEqual(await visit(token), [200, 'inside\n'])
      assert.equal((await visit())[0], 403)
    }),
}

await runParts(parts)
