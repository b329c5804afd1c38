"""A service with a leak: what it remembers of each request is never dropped."""

import time

seen: dict[int, bytes] = {}
request = 0
end = time.monotonic() + 30
while time.monotonic() < end:
    for _ in range(200):
        request += 1
        answer = [bytes(300) for _ in range(20)]  # gone with the next request
        seen[request] = bytes(700)  # never gone
    time.sleep(0.02)
