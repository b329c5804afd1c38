"""objects.py COUNT SEED: records of strings, lists and dicts, of which half go again; those that are left, sorted."""

from __future__ import annotations

import random
import sys

count, seed = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)


def record(number: int) -> dict[str, object]:
    words = [f"{rng.getrandbits(40):x}" for _ in range(rng.randrange(1, 5))]
    return {"id": number, "name": "n" * rng.randrange(4, 80), "words": words, "at": float(number)}


records: dict[str, object] = {f"key-{number}": record(number) for number in range(count)}
for key in rng.sample(sorted(records), count // 2):
    del records[key]
records.update((f"new-{number}", [record(number)]) for number in range(count // 3))
left = sorted(records, key=lambda key: key[::-1])
print(len(left), left[0], left[-1])
