CREATE TABLE item (id INTEGER PRIMARY KEY, number INTEGER, name TEXT, body TEXT);
WITH RECURSIVE row(n, r) AS (
  SELECT 1, :seed UNION ALL SELECT n + 1, (r * 1103515245 + 12345) % 2147483648 FROM row WHERE n < :rows)
INSERT INTO item SELECT n, r % 100000, printf('name-%d', r), printf('%.*c', 20 + r % 400, 'x') FROM row;
CREATE INDEX item_name ON item (name);
CREATE INDEX item_number ON item (number, name);
SELECT count(*), sum(length(body)) FROM item WHERE number BETWEEN 1000 AND 5000;
SELECT number % 1000 AS class, group_concat(name) FROM item GROUP BY class ORDER BY class LIMIT 1;
DELETE FROM item WHERE id % 3 = 0;
UPDATE item SET body = body || body WHERE id % 7 = 0;
SELECT count(DISTINCT a.number) FROM item AS a JOIN item AS b ON a.name = b.name;
