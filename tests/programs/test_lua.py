"""lua, which asks realloc for everything that it has."""

from trial import Trial

SCRIPT = r"""
local function queens(n)
  local function place(row, columns, up, down)
    if row > n then return 1 end
    local count = 0
    for c = 1, n do
      if not (columns[c] or up[row + c] or down[row - c]) then
        columns[c], up[row + c], down[row - c] = true, true, true
        count = count + place(row + 1, columns, up, down)
        columns[c], up[row + c], down[row - c] = nil, nil, nil
      end
    end
    return count
  end
  return place(1, {}, {}, {})
end
print(queens(7))
local words = {}
for i = 1, 200000 do words[i] = 'word' .. i * 7919 % 100003 end
table.sort(words)
print(#table.concat(words), words[1], words[#words])
local weak, kept = setmetatable({}, { __mode = 'k' }), {}
for i = 1, 50000 do local key = { i }; weak[key] = ('v'):rep(i % 300); if i % 10 == 0 then kept[#kept + 1] = key end end
collectgarbage()
local left = 0
for _ in pairs(weak) do left = left + 1 end
print(left)
local total = 0
for i = 1, 2000 do
  local step = coroutine.wrap(function() for n = 1, 10 do coroutine.yield(('x'):rep(n * i % 500)) end end)
  for _ = 1, 10 do total = total + #step() end
end
print(total, (('abc '):rep(20000):gsub('(%a)(%a)', '%2%1')):sub(-5))
"""


def test_lua(trial: Trial) -> None:
    """Tables, sorting, strings, weak tables, coroutines"""
    lua = trial.program("lua5.4", "-v")
    lines = trial.compare(lambda side: side.run(lua, "-e", SCRIPT)).splitlines()
    words = sorted(f"word{i * 7919 % 100003}" for i in range(1, 200001))
    total = sum(n * i % 500 for i in range(1, 2001) for n in range(1, 11))
    assert lines[0] == "40"
    assert lines[1].split() == [str(len("".join(words))), words[0], words[-1]]
    assert lines[2] == "5000"
    assert lines[3] == f"{total}\t bac "
