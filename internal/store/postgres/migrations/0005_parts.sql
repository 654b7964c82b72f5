-- Bits: 1 something in it was killed for memory, and of a part of a build, which is counted with another row:
-- 2 of all builds, 4 of its machine's, 8 of its runner's; 16 that something was killed. See Row.Flags in package store.
ALTER TABLE builds RENAME COLUMN oom TO flags;
