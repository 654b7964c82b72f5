CREATE TABLE meta (
  name  text COLLATE "C" PRIMARY KEY,
  value bigint NOT NULL
);

INSERT INTO meta VALUES ('kept_from', 0);

CREATE SEQUENCE builds_id AS bigint CACHE 100;

-- Where a key is: builds are unique by key within a partition only.
CREATE TABLE build_keys (
  shard smallint NOT NULL,
  key   text COLLATE "C" NOT NULL,
  at    bigint NOT NULL,
  id    bigint NOT NULL DEFAULT nextval('builds_id'),
  metered smallint NOT NULL,
  PRIMARY KEY (key, shard)
);

CREATE INDEX build_keys_at ON build_keys USING brin (at);

-- Times are microseconds since 1970, costs whole microseconds or bytes; -1 is not known.
CREATE TABLE builds (
  shard        smallint NOT NULL,
  id           bigint NOT NULL, -- of build_keys
  key          text COLLATE "C" NOT NULL,
  at           bigint NOT NULL,
  received_at  bigint NOT NULL,
  agent        text COLLATE "C" NOT NULL,
  ci           text COLLATE "C" NOT NULL,
  server       text COLLATE "C" NOT NULL,
  project      text COLLATE "C" NOT NULL,
  number       text COLLATE "C" NOT NULL,
  name         text COLLATE "C" NOT NULL,
  ref          text COLLATE "C" NOT NULL,
  event        text COLLATE "C" NOT NULL,
  pipeline     text COLLATE "C" NOT NULL,
  machine      text COLLATE "C" NOT NULL,
  runner       text COLLATE "C" NOT NULL,
  runner_name  text COLLATE "C" NOT NULL,
  result       text COLLATE "C" NOT NULL,
  verdicts     text COLLATE "C" NOT NULL,
  stages       text COLLATE "C" NOT NULL, -- set of names, a target of names of stages
  metered      smallint NOT NULL, -- 0: only a CI server told of it
  tags         text COLLATE "C" NOT NULL, -- ,docker,arm,
  wall_us      bigint NOT NULL,
  cpu_us       bigint NOT NULL,
  queue_us     bigint NOT NULL,
  throttled_us bigint NOT NULL,
  mem_peak     bigint NOT NULL,
  mem_limit    bigint NOT NULL,
  io_bytes     bigint NOT NULL,
  net_bytes    bigint NOT NULL,
  oom          bigint NOT NULL,
  record       bytea NOT NULL,
  trace        bytea,
  PRIMARY KEY (at, id, shard)
) PARTITION BY RANGE (at);

-- The stored forms are compressed already.
ALTER TABLE builds ALTER record SET STORAGE EXTERNAL, ALTER trace SET STORAGE EXTERNAL;

CREATE TABLE builds_rest PARTITION OF builds DEFAULT;

CREATE INDEX builds_key       ON builds (key);

-- What lists sort by and check, and sums add up, is in the index that they go along:
-- thousands of builds are looked at without a read of each. See covers in package store.
CREATE INDEX builds_at        ON builds (at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);

CREATE INDEX builds_project   ON builds (project, at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);

CREATE INDEX builds_job       ON builds (project, name, at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);

CREATE INDEX builds_name      ON builds (name, at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);

CREATE INDEX builds_ref       ON builds (ref, at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);

CREATE INDEX builds_machine   ON builds (machine, at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);

CREATE INDEX builds_runner    ON builds (runner, at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);

CREATE INDEX builds_result    ON builds (result, at, id) INCLUDE (shard, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, throttled_us, oom);

CREATE INDEX builds_ci        ON builds (ci, at, id);

CREATE INDEX builds_stages    ON builds (stages, at, id);

CREATE INDEX builds_unmetered ON builds (at) WHERE metered = 0;

CREATE INDEX builds_tags      ON builds (at) WHERE tags <> '';

CREATE INDEX builds_number    ON builds (number, at);

CREATE INDEX builds_pipeline  ON builds (pipeline, at) WHERE pipeline <> '';

CREATE INDEX builds_verdicts  ON builds (at, id) WHERE verdicts <> '';

CREATE INDEX builds_cpu_us    ON builds (cpu_us, id) INCLUDE (shard, at, wall_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result);

CREATE INDEX builds_wall_us   ON builds (wall_us, id) INCLUDE (shard, at, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result);

CREATE INDEX builds_queue_us  ON builds (queue_us, id) INCLUDE (shard, at, wall_us, cpu_us, mem_peak, mem_limit, io_bytes, net_bytes, result);

CREATE INDEX builds_mem_peak  ON builds (mem_peak, id) INCLUDE (shard, at, wall_us, cpu_us, queue_us, mem_limit, io_bytes, net_bytes, result);

CREATE INDEX builds_io_bytes  ON builds (io_bytes, id) INCLUDE (shard, at, wall_us, cpu_us, queue_us, mem_peak, mem_limit, net_bytes, result);

CREATE INDEX builds_net_bytes ON builds (net_bytes, id) INCLUDE (shard, at, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, result);

CREATE TABLE rollups (
  shard        smallint NOT NULL,
  dim          smallint NOT NULL,
  a            text COLLATE "C" NOT NULL,
  b            text COLLATE "C" NOT NULL,
  c            text COLLATE "C" NOT NULL,
  at           bigint NOT NULL,
  builds       bigint NOT NULL,
  failed       bigint NOT NULL,
  canceled     bigint NOT NULL,
  oom          bigint NOT NULL,
  wall_us      bigint NOT NULL,
  cpu_us       bigint NOT NULL,
  queue_us     bigint NOT NULL,
  queued       bigint NOT NULL,
  throttled_us bigint NOT NULL,
  io_bytes     bigint NOT NULL,
  net_bytes    bigint NOT NULL,
  mem_peak     bigint NOT NULL,
  last_at      bigint NOT NULL,
  PRIMARY KEY (dim, a, b, at, c, shard)
) WITH (fillfactor = 70);

CREATE INDEX rollups_at ON rollups (dim, at);

-- Sums of the stages of a job and day, in one value.
CREATE TABLE stage_totals (
  shard smallint NOT NULL,
  a     text COLLATE "C" NOT NULL,
  b     text COLLATE "C" NOT NULL,
  at    bigint NOT NULL,
  data  bytea NOT NULL,
  PRIMARY KEY (a, b, at, shard)
) WITH (fillfactor = 70);

CREATE INDEX stage_totals_at ON stage_totals (at);

CREATE TABLE names (
  shard  smallint NOT NULL,
  kind   text COLLATE "C" NOT NULL,
  value  text COLLATE "C" NOT NULL,
  target text COLLATE "C" NOT NULL,
  PRIMARY KEY (kind, value, target, shard)
);

-- What programs keep between their runs: how far a backfill came.
CREATE TABLE notes (
  name  text COLLATE "C" PRIMARY KEY,
  value text NOT NULL
);
