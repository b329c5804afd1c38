\set from random(1, 90000)
SELECT count(*), md5(string_agg(aid || ':' || abalance, ',' ORDER BY aid)) FROM pgbench_accounts WHERE aid BETWEEN :from AND :from + 3000;
SELECT abalance FROM pgbench_accounts WHERE aid = :from;
SELECT key, jsonb_agg(n) FROM (SELECT n % 97 AS key, n FROM generate_series(1, 3000) n) rows GROUP BY key ORDER BY key LIMIT 5;
SELECT a.bid, sum(a.abalance + b.aid) FROM pgbench_accounts a JOIN pgbench_accounts b ON a.aid = b.aid + 1 WHERE a.aid BETWEEN :from AND :from + 2000 GROUP BY a.bid;
