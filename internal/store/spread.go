package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

// A build that works on several machines (a Jenkins pipeline with two nodes, the
// pods of a Woodpecker workflow) has one key, and each machine's agent sends a
// record of its part; an agent that was restarted between two pods of a build sends
// two. The first to come has the key, the first of each other machine the key with its
// machine, and what else a machine did that with the start of it: see [MachineKey] and
// [PartKey]. What is summed by machine and runner is right without more, and no record
// is ever changed by another.

// onMachine stands before the machine at the end of a key, and startedAt, which no
// machine's name has there, before a start.
const (
	onMachine = "/@"
	startedAt = ","
)

// MaxMachines bounds the machines of a build that [Reader.Machines] answers.
const MaxMachines = 64

// MaxParts bounds the parts of a build that are looked at for a further one.
const MaxParts = 2 * MaxMachines

// MachineKey is the key of what a build did on a machine that was not the first to
// tell of it. A name that makes it too long is told by its digest.
func MachineKey(key, machine string) string { return keyOn(key, machine, "") }

// PartKey is the key of what a build did on a machine from a time on, of which the
// machine had told a part before.
func PartKey(key, machine string, from time.Time) string {
	return keyOn(key, machine, startedAt+strconv.FormatInt(Micros(from), 10))
}

func keyOn(key, machine, rest string) string {
	name := url.PathEscape(machine)
	if len(key)+len(onMachine)+len(name)+len(rest) > MaxKeyBytes {
		sum := sha256.Sum256([]byte(machine))
		name = hex.EncodeToString(sum[:8])
	}
	return key + onMachine + name + rest
}

// PartKeys are the keys under which a record may be kept besides its own.
func (r *Row) PartKeys() (machine, part string) {
	return MachineKey(r.Key, r.Machine), PartKey(r.Key, r.Machine, r.put.Record.StartedAt)
}

// PartRange is the range of the keys of a build's parts; to is exclusive.
func PartRange(key string) (from, to string) { return key + onMachine, key + "/A" } // A follows @

// BuildOf is the key of the build whose part on a machine has a key; ok is false
// for a key of no such form.
func BuildOf(key string) (build string, ok bool) {
	i := strings.LastIndex(key, onMachine)
	if i <= 0 || strings.Contains(key[i+len(onMachine):], "/") {
		return "", false
	}
	return key[:i], true
}

// Machines returns what a build did on each of its machines, without traces, the
// earliest start first, at most MaxMachines of them; of a machine that had several pods
// of it there may be several, as agents put the pod to the key of all but the first, or
// forget that they had one. key
// is the build's or that of one of its parts. A build of one machine is one record. A
// record of the same key that is of another build (some CI systems' keys tell no server)
// is not among them. The error wraps [cimeter.ErrNotFound] when there is no such build.
func (r Reader) Machines(ctx context.Context, key string) ([]*cimeter.Record, error) {
	asked, err := r.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	asked.Trace = nil
	of, err := r.whole(ctx, asked)
	if err != nil {
		return nil, err
	}
	s := statement{dialect: r.q.Dialect()}
	from, to := of+"/", of+"0" // 0 follows the slash
	// The few keys come first: no plan goes through all builds for them.
	if s.dialect == Postgres {
		s.add(`SELECT b.key, b.record FROM (SELECT key, id, shard, at FROM build_keys WHERE key = ? UNION ALL
(SELECT key, id, shard, at FROM build_keys WHERE key >= ? AND key < ? ORDER BY key LIMIT ?)) k
JOIN builds b ON b.id = k.id AND b.shard = k.shard AND b.at = k.at`, of, from, to, 2*MaxMachines)
	} else {
		s.add(`SELECT key, record FROM (SELECT id, key FROM builds WHERE key = ? UNION ALL
SELECT * FROM (SELECT id, key FROM builds WHERE key >= ? AND key < ? ORDER BY key LIMIT ?)) JOIN bodies USING (id)`, of, from, to, 2*MaxMachines)
	}
	parts := []*cimeter.Record{asked}
	err = s.run(ctx, r.q, func(scan func(dest ...any) error) error {
		var at string
		var stored []byte
		if err := scan(&at, &stored); err != nil || at == asked.Key || len(parts) == MaxMachines {
			return err
		}
		part, err := Decode(at, stored, nil)
		if err == nil && partOf(part, of) && sameBuild(part, asked) {
			parts = append(parts, part)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("machines of build %.200q: %w", key, err)
	}
	slices.SortStableFunc(parts, func(x, y *cimeter.Record) int {
		return cmp.Or(x.StartedAt.Compare(y.StartedAt), strings.Compare(x.Machine, y.Machine))
	})
	return parts, nil
}

// whole is the key of the build that a record is, or is a part of.
func (r Reader) whole(ctx context.Context, part *cimeter.Record) (string, error) {
	if build, ok := BuildOf(part.Key); ok {
		return build, nil
	}
	i := strings.LastIndexByte(part.Key, '/')
	if i <= 0 || !partOf(part, part.Key[:i]) {
		return part.Key, nil
	}
	build, err := r.Get(ctx, part.Key[:i])
	switch {
	case errors.Is(err, cimeter.ErrNotFound), err == nil && !sameBuild(build, part):
		return part.Key, nil
	case err != nil:
		return "", err
	}
	return build.Key, nil
}

// partOf reports whether the key of a record is a build's, or that with a machine or
// with the pod, which its runner is, at its end.
func partOf(part *cimeter.Record, build string) bool {
	rest, ok := strings.CutPrefix(part.Key, build)
	if of, on := BuildOf(part.Key); on {
		return of == build
	}
	return ok && (rest == "" || part.Runner.Name != "" && rest == "/"+url.PathEscape(part.Runner.Name))
}

// sameBuild reports whether two records of one key are of one build: of a CI server
// that both tell, and nothing that both tell contradicts.
func sameBuild(x, y *cimeter.Record) bool {
	if x.Server == "" || x.Server != y.Server || x.CI != y.CI {
		return false
	}
	if place := x.Place(); place != "" { // its number is another one when its CI server has told of it
		return place == y.Place()
	}
	for _, f := range [][2]string{{x.Project, y.Project}, {x.Number, y.Number}, {x.Name, y.Name}, {x.Pipeline, y.Pipeline}} {
		if f[0] != "" && f[1] != "" && f[0] != f[1] {
			return false
		}
	}
	return true
}
