-- Kept beside a build, which never changes: names and times of the sections of its log, as JSON in zstd.
CREATE TABLE sections (
  key  TEXT PRIMARY KEY,
  at   INTEGER NOT NULL, -- of the build's end, as in builds
  data BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sections_at ON sections (at);

-- What waited and ran on a CI server: means over step seconds that end at, seconds since 1970.
CREATE TABLE queue_points (
  server  TEXT NOT NULL,
  step    INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  waiting REAL NOT NULL,
  blocked REAL NOT NULL,
  running REAL NOT NULL,
  slots   REAL, -- NULL is not known
  p50     REAL,
  p95     REAL,
  PRIMARY KEY (step, at, server)
) STRICT, WITHOUT ROWID;
