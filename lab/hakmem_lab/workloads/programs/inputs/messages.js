// messages.js COUNT SEED: JSON there and back, buffers of many sizes kept for a while, compressed; prints a hash.
"use strict";
const { createHash } = require("node:crypto");
const { deflateSync } = require("node:zlib");

const [count, seed] = process.argv.slice(2).map(Number);
let state = (seed % 2147483647) + 1;
const draw = (limit) => (state = (state * 48271) % 2147483647) % limit;

const hash = createHash("sha256");
const kept = new Map();
for (let number = 0; number < count; number++) {
  const message = { number, tags: Array.from({ length: draw(8) }, () => draw(1e9).toString(36)), body: "b".repeat(draw(600)) };
  const text = JSON.stringify(message);
  kept.set(draw(2000), Buffer.allocUnsafeSlow(16 + draw(20000)).fill(number & 255, 0, 16));
  if (number % 8 === 0) hash.update(deflateSync(Buffer.from(text), { level: 1 }));
  hash.update(JSON.parse(text).tags.join());
}
for (const [key, buffer] of [...kept].sort((a, b) => a[0] - b[0])) hash.update(`${key}:${buffer.length}:${buffer[3]}`);
console.log(hash.digest("hex"));
