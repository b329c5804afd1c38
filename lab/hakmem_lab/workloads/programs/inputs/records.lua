-- records.lua COUNT SEED: tables of strings and tables, of which half go again; prints what is left.
local count, seed = tonumber(arg[1]), tonumber(arg[2])

-- Its own generator: the same numbers in every version of Lua.
local state = seed % 2147483647 + 1
local function draw(limit)
    state = state * 48271 % 2147483647
    return state % limit + 1
end

local records = {}
for number = 1, count do
    local words = {}
    for i = 1, draw(6) do words[i] = string.format("%x", draw(1000000000)) end
    records[number] = { id = number, name = string.rep("n", draw(90)), words = words }
end
for _ = 1, count // 2 do records[draw(count)] = { table.concat({ "new", draw(1000), "name" }, "-") } end
local parts = {}
for number, record in ipairs(records) do
    parts[#parts + 1] = record.words and table.concat(record.words, ",") or record[1]
    if number % 64 == 0 then parts = { table.concat(parts, ";"):sub(-4096) } end
end
table.sort(records, function(a, b) return (a.name or a[1]) < (b.name or b[1]) end)
local sum = 0
for number, record in ipairs(records) do sum = (sum * 31 + #(record.name or record[1]) * number) % 1000000007 end
print(sum, #parts[1])
