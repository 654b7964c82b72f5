-- Kept beside a build, which never changes: names and times of the sections of its log, as JSON in zstd.
CREATE TABLE sections (
  key  text COLLATE "C" PRIMARY KEY,
  at   bigint NOT NULL, -- of the build's end, as in builds
  data bytea NOT NULL
);

ALTER TABLE sections ALTER data SET STORAGE EXTERNAL;

CREATE INDEX sections_at ON sections USING brin (at);

-- What waited and ran on a CI server: means over step seconds that end at, seconds since 1970.
CREATE TABLE queue_points (
  server  text COLLATE "C" NOT NULL,
  step    integer NOT NULL,
  at      bigint NOT NULL,
  waiting real NOT NULL,
  blocked real NOT NULL,
  running real NOT NULL,
  slots   real, -- NULL is not known
  p50     real,
  p95     real,
  PRIMARY KEY (step, at, server)
);
