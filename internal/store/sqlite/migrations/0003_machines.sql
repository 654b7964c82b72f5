-- What a machine did, as its agent told: means over the ten minutes that end at, seconds since 1970. NULL is not known.
CREATE TABLE machine_points (
  machine  TEXT NOT NULL,
  at       INTEGER NOT NULL,
  builds   REAL, -- cores
  other    REAL,
  cimeter  REAL,
  coverage REAL, -- 0 to 1
  PRIMARY KEY (machine, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX machine_points_at ON machine_points (at);
