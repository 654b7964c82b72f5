package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
)

// Store is the method set of every back end.
type Store interface {
	Put(ctx context.Context, batch []store.Put) (store.PutResult, error)
	PutJobs(ctx context.Context, jobs []cimeter.Job) error
	Note(ctx context.Context, name string) (string, error)
	SetNote(ctx context.Context, name, value string) error
	Get(ctx context.Context, key string) (*cimeter.Record, error)
	Trace(ctx context.Context, key string) (*cimeter.Trace, error)
	Machines(ctx context.Context, key string) ([]*cimeter.Record, error)
	Neighbours(ctx context.Context, of *cimeter.Record) (store.Neighbours, error)
	List(ctx context.Context, q store.Query) (store.Page, error)
	Each(ctx context.Context, f filter.Filter, traces bool, fn func(*cimeter.Record) error) error
	Sum(ctx context.Context, f filter.Filter) (store.Sum, error)
	Course(ctx context.Context, f filter.Filter, most int) (store.Sum, []store.Point, error)
	Groups(ctx context.Context, q store.GroupQuery) (store.Groups, error)
	Buckets(ctx context.Context, q store.BucketQuery) ([]store.Bucket, error)
	History(ctx context.Context, h store.HistoryQuery) ([]*cimeter.Record, error)
	PutSections(ctx context.Context, all []store.Sections) error
	SectionsOf(ctx context.Context, keys []string) (map[string][]byte, error)
	PutQueuePoints(ctx context.Context, points []queue.KeptPoint, keep map[time.Duration]time.Time) error
	QueuePoints(ctx context.Context, step time.Duration, since time.Time) ([]queue.KeptPoint, error)
	Warm(ctx context.Context, now time.Time) error
	PutMachinePoints(ctx context.Context, points []store.MachinePoint, upTo time.Time) error
	MachinePoints(ctx context.Context, machine string, since time.Time) ([]store.MachinePoint, error)
	Names(ctx context.Context, kind, part string, limit int) ([]string, error)
	Stats(ctx context.Context) (store.Stats, error)
	Retain(ctx context.Context, r store.Retention) (store.Retained, error)
	Backup(ctx context.Context, path string) error
	Check(ctx context.Context) error
	Lead(ctx context.Context, name string) (held <-chan struct{}, release func(), err error)
	Close() error
}

// Open returns an empty store that is closed when the test ends.
type Open func(t testing.TB) Store

// cases is the contract.
var cases = []struct {
	name string
	run  func(t *testing.T, s Store)
}{
	{"a record comes back as it was put", testLossless},
	{"a key is kept once", testOnce},
	{"a batch is kept whole or not at all", testWholeBatch},
	{"what cannot be kept is refused", testRefused},
	{"batches in any order, twice and at once, make the same store", testReordered},
	{"a build that only its CI server told of is there without usage", testJobs},
	{"a record and the jobs of its build join in any order", testJoin},
	{"records and jobs at once make one build each", testJoinAtOnce},
	{"a build that both sides number apart is one by run, runner and time", testPlaces},
	{"no two builds are taken for one where that is not sure", testPlacesApart},
	{"both sides of builds that are numbered apart, at once, make one each", testPlacesAtOnce},
	{"each machine's part of a build is kept once", testSpread},
	{"the machines of a build may write at once", testSpreadAtOnce},
	{"a machine may tell of a build twice", testParts},
	{"a build of several machines is told of at any time", testSpreadTold},
	{"a job that is numbered apart joins one of the machines of its build", testSpreadPlaces},
	{"the pods of a build on one machine are told with it", testSpreadPods},
	{"builds that share a key by chance are told apart", testSpreadOthers},
	{"a part is kept once though the first is deleted", testSpreadRetained},
	{"a note is kept", testNote},
	{"what stands beside a build is kept as long as it is", testSections},
	{"the history of queues is kept, in steps, for a time", testQueuePoints},
	{"what machines did is kept for a time", testMachinePoints},
	{"a list holds what meets its filter, in its order", testList},
	{"a page ends where the next begins", testPages},
	{"a question that makes no sense is refused", testBadQuestions},
	{"names of any kind are data", testHostileNames},
	{"a clock that is ahead does not lead the lists", testFuture},
	{"a sum is of the builds of its filter", testSum},
	{"a course is the latest builds of its filter", testCourse},
	{"groups add up", testGroups},
	{"groups add up while builds come", testGroupsAgain},
	{"buckets add up", testBuckets},
	{"history is of one job", testHistory},
	{"history has a build of several machines once", testHistoryParts},
	{"what ran beside a build is told", testNeighbours},
	{"names are found by a part", testNames},
	{"an export holds every build once", testEach},
	{"figures of the store", testStats},
	{"age deletes what is old, and it stays deleted", testRetainAge},
	{"size deletes the oldest", testRetainSize},
	{"one leads at a time", testLead},
	{"reads go on while records come", testReadWhileWriting},
}

// Run holds a back end to the contract.
func Run(t *testing.T, open Open) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}
