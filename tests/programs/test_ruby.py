"""ruby: objects are slots of its own heap, and all that does not fit into one comes from malloc."""

from trial import Trial

SCRIPT = r"""
require 'digest'; require 'json'; require 'zlib'
words = (1..60_000).map { |n| "word#{n * 7919 % 1000}" }
count = words.tally
puts [count.size, count['word7'], words.uniq.sort.join.length].join(' ')
rows = (1..6000).map { |n| { 'id' => n, 'name' => "row #{n}" * (n % 9), 'tags' => [n] * (n % 7) } }
3.times { rows = JSON.parse(JSON.generate(rows)); rows = Marshal.load(Marshal.dump(rows)) }
packed = Zlib.deflate(rows.to_s)
puts Digest::SHA256.hexdigest(Zlib.inflate(packed))
sums = 4.times.map { |t| Thread.new { (1..20_000).map { |n| "#{t} #{n}" }.reject { |s| s.include?('7') }.size } }
puts sums.map(&:value).join(' ')
GC.start; GC.compact if GC.respond_to?(:compact)
fibers = (1..200).map { |n| Fiber.new { 5.times { |i| Fiber.yield('x' * (n * i)) } } }
puts 5.times.sum { fibers.sum { |fiber| fiber.resume.length } }
puts (1..400).inject(:*).to_s.length
"""


def test_ruby(trial: Trial) -> None:
    """Strings, JSON, Marshal, threads, fibres, compaction, big numbers"""
    ruby = trial.program("ruby", "--version")
    lines = trial.compare(lambda side: side.run(ruby, "-e", SCRIPT)).splitlines()
    assert lines[0] == "1000 60 6890"
    left = [sum("7" not in f"{thread} {n}" for n in range(1, 20001)) for thread in range(4)]
    assert lines[2].split() == [str(count) for count in left]
    assert lines[3:] == [str(sum(n * i for n in range(1, 201) for i in range(5))), "869"]
