"""sqlite3: tables, indices, full text and JSON in a file, and the file's own check of itself."""

from trial import Side, Trial

SCRIPT = """
CREATE TABLE numbers (n INTEGER PRIMARY KEY, square INTEGER, name TEXT);
WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 100000)
INSERT INTO numbers SELECT n, n * n, 'name ' || (n * 7919 % 100003) FROM up;
CREATE INDEX by_name ON numbers (name);
DELETE FROM numbers WHERE n % 3 = 0;
VACUUM;
SELECT count(*), sum(square), (SELECT n FROM numbers WHERE name = 'name 7919') FROM numbers;
CREATE VIRTUAL TABLE pages USING fts5(body);
INSERT INTO pages SELECT group_concat(name, ' ') FROM numbers GROUP BY n / 50;
SELECT count(*) FROM pages WHERE pages MATCH 'name AND 7919';
SELECT sum(json_extract(value, '$.n')) FROM json_each((SELECT json_group_array(json_object('n', n)) FROM numbers));
SELECT max(running) FROM (SELECT sum(n) OVER (ORDER BY name) AS running FROM numbers);
PRAGMA integrity_check;
"""


def test_sqlite(trial: Trial) -> None:
    """100 000 rows with an index, VACUUM, full text, JSON, window functions, integrity check"""
    sqlite = trial.program("sqlite3", "--version")

    def work(side: Side) -> tuple[str, str]:
        printed = side.run(sqlite, "data.db", stdin=SCRIPT)
        return printed, side.run(sqlite, "data.db", ".dump")

    printed, _ = trial.compare(work)
    numbers = [n for n in range(1, 100001) if n % 3]
    squares = sum(n * n for n in numbers)
    assert printed.splitlines() == [f"66667|{squares}|1", "1", str(sum(numbers)), str(sum(numbers)), "ok"]
