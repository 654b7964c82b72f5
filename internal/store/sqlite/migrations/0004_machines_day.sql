-- What else a machine did: bytes in use, bytes a second of disk and of network, both ways, and the largest share
-- of time, 0 to 1, in which some task waited. NULL is not known.
ALTER TABLE machine_points ADD COLUMN memory REAL;
ALTER TABLE machine_points ADD COLUMN io REAL;
ALTER TABLE machine_points ADD COLUMN network REAL;
ALTER TABLE machine_points ADD COLUMN pressure REAL;
