CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Times are microseconds since 1970, costs whole microseconds or bytes; -1 is not known.
CREATE TABLE builds (
  id           INTEGER PRIMARY KEY,
  key          TEXT NOT NULL UNIQUE,
  at           INTEGER NOT NULL,
  received_at  INTEGER NOT NULL,
  agent        TEXT NOT NULL,
  ci           TEXT NOT NULL,
  server       TEXT NOT NULL,
  project      TEXT NOT NULL,
  number       TEXT NOT NULL,
  name         TEXT NOT NULL,
  ref          TEXT NOT NULL,
  event        TEXT NOT NULL,
  pipeline     TEXT NOT NULL,
  machine      TEXT NOT NULL,
  runner       TEXT NOT NULL,
  runner_name  TEXT NOT NULL,
  result       TEXT NOT NULL,
  verdicts     TEXT NOT NULL,
  stages       TEXT NOT NULL, -- set of names, a target of names of stages
  metered      INTEGER NOT NULL, -- 0: only a CI server told of it
  tags         TEXT NOT NULL, -- ,docker,arm,
  wall_us      INTEGER NOT NULL,
  cpu_us       INTEGER NOT NULL,
  queue_us     INTEGER NOT NULL,
  throttled_us INTEGER NOT NULL,
  mem_peak     INTEGER NOT NULL,
  mem_limit    INTEGER NOT NULL,
  io_bytes     INTEGER NOT NULL,
  net_bytes    INTEGER NOT NULL,
  oom          INTEGER NOT NULL
) STRICT;

-- What lists sort by and check, and sums add up, is in the index that they go along:
-- thousands of builds are looked at without a read of each. See covers in package store.
CREATE INDEX builds_at        ON builds (at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);
CREATE INDEX builds_project   ON builds (project, at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);
CREATE INDEX builds_job       ON builds (project, name, at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);
CREATE INDEX builds_name      ON builds (name, at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);
CREATE INDEX builds_ref       ON builds (ref, at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);
CREATE INDEX builds_machine   ON builds (machine, at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);
CREATE INDEX builds_runner    ON builds (runner, at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result, throttled_us, oom);
CREATE INDEX builds_result    ON builds (result, at, id, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, throttled_us, oom);
CREATE INDEX builds_ci        ON builds (ci, at);
CREATE INDEX builds_stages    ON builds (stages, at);
CREATE INDEX builds_number    ON builds (number, at);
CREATE INDEX builds_pipeline  ON builds (pipeline, at) WHERE pipeline <> '';
CREATE INDEX builds_verdicts  ON builds (at) WHERE verdicts <> '';
CREATE INDEX builds_unmetered ON builds (at) WHERE metered = 0;
CREATE INDEX builds_tags      ON builds (at) WHERE tags <> '';
CREATE INDEX builds_cpu_us    ON builds (cpu_us, id, at, wall_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result);
CREATE INDEX builds_wall_us   ON builds (wall_us, id, at, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, net_bytes, result);
CREATE INDEX builds_queue_us  ON builds (queue_us, id, at, wall_us, cpu_us, mem_peak, mem_limit, io_bytes, net_bytes, result);
CREATE INDEX builds_mem_peak  ON builds (mem_peak, id, at, wall_us, cpu_us, queue_us, mem_limit, io_bytes, net_bytes, result);
CREATE INDEX builds_io_bytes  ON builds (io_bytes, id, at, wall_us, cpu_us, queue_us, mem_peak, mem_limit, net_bytes, result);
CREATE INDEX builds_net_bytes ON builds (net_bytes, id, at, wall_us, cpu_us, queue_us, mem_peak, mem_limit, io_bytes, result);

-- The whole record and its trace, as JSON in zstd.
CREATE TABLE bodies (
  id     INTEGER PRIMARY KEY REFERENCES builds (id) ON DELETE CASCADE,
  record BLOB NOT NULL,
  trace  BLOB
) STRICT;

CREATE TABLE rollups (
  dim          INTEGER NOT NULL,
  a            TEXT NOT NULL,
  b            TEXT NOT NULL,
  c            TEXT NOT NULL,
  at           INTEGER NOT NULL,
  builds       INTEGER NOT NULL,
  failed       INTEGER NOT NULL,
  canceled     INTEGER NOT NULL,
  oom          INTEGER NOT NULL,
  wall_us      INTEGER NOT NULL,
  cpu_us       INTEGER NOT NULL,
  queue_us     INTEGER NOT NULL,
  queued       INTEGER NOT NULL,
  throttled_us INTEGER NOT NULL,
  io_bytes     INTEGER NOT NULL,
  net_bytes    INTEGER NOT NULL,
  mem_peak     INTEGER NOT NULL,
  last_at      INTEGER NOT NULL,
  PRIMARY KEY (dim, at, a, b, c)
) STRICT, WITHOUT ROWID;

CREATE INDEX rollups_names ON rollups (dim, a, b, at);

-- Sums of the stages of a job and day, in one value.
CREATE TABLE stage_totals (
  a    TEXT NOT NULL,
  b    TEXT NOT NULL,
  at   INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (a, b, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX stage_totals_at ON stage_totals (at);

CREATE TABLE names (
  kind   TEXT NOT NULL,
  value  TEXT NOT NULL,
  target TEXT NOT NULL,
  PRIMARY KEY (kind, value, target)
) STRICT, WITHOUT ROWID;

-- What programs keep between their runs: how far a backfill came.
CREATE TABLE notes (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
