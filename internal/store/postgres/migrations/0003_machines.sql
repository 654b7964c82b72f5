-- What a machine did, as its agent told: means over the ten minutes that end at, seconds since 1970. NULL is not known.
CREATE TABLE machine_points (
  machine  text COLLATE "C" NOT NULL,
  at       bigint NOT NULL,
  builds   real, -- cores
  other    real,
  cimeter  real,
  coverage real, -- 0 to 1
  PRIMARY KEY (machine, at)
);

CREATE INDEX machine_points_at ON machine_points (at);
