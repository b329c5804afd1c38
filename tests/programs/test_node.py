"""node: its JavaScript objects have a heap of their own; buffers, workers and the engine itself come from malloc."""

import hashlib

from trial import Trial

SCRIPT = """
const { Worker } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');
const source = `
  const { parentPort } = require('worker_threads');
  const rows = Array.from({ length: 20000 }, (_, i) => ({ i, name: 'row ' + i }));
  const buffers = Array.from({ length: 500 }, (_, i) => Buffer.alloc(1000 + i, i));
  parentPort.postMessage(JSON.parse(JSON.stringify(rows)).length + Buffer.concat(buffers).length);
`;
const text = 'x'.repeat(1000000);
const again = zlib.gunzipSync(zlib.gzipSync(text)).toString();
const hash = crypto.createHash('sha256').update(again).digest('hex');
Promise.all([1, 2].map(() => new Promise((done, fail) => {
  const worker = new Worker(source, { eval: true });
  worker.on('message', done); worker.on('error', fail);
}))).then((sums) => console.log(hash, ...sums));
"""


def test_node(trial: Trial) -> None:
    """Workers, buffers, compression, hashing"""
    node = trial.program("node", "--version")
    digest = hashlib.sha256(b"x" * 1000000).hexdigest()
    total = 20000 + sum(1000 + i for i in range(500))
    assert trial.compare(lambda side: side.run(node, "-e", SCRIPT)) == f"{digest} {total} {total}\n"
    trial.note("JavaScript objects have a heap of their own")
