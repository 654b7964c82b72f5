package process

import (
	"os"
	"testing"
)

// A child that ends while the tree is being read may be in its parent's account
// or not; the next scan tells.
func TestTree_settle_aChildThatEndsDuringTheScan(t *testing.T) {
	for name, c := range map[string]struct {
		during, after, kept uint64 // the parent's account; it was 5
	}{
		"waited for before the parent was read": {during: 9, after: 9, kept: 0},
		"waited for after":                      {during: 5, after: 9, kept: 0},
		"and others with it":                    {during: 8, after: 12, kept: 0},
		"not waited for":                        {during: 5, after: 5, kept: 4},
	} {
		t.Run(name, func(t *testing.T) {
			parent := &node{now: amounts{user: c.during}, before: amounts{user: 5}, unsure: true}
			child := &node{parent: parent, now: amounts{user: 4}, before: amounts{user: 4}}
			tree := &Tree{live: map[int]*node{1: parent}}
			tree.settle([]*node{child})
			if tree.kept != (amounts{}) {
				t.Errorf("kept %v at once, want to wait for the next scan", tree.kept)
			}
			parent.now[user] = c.after
			tree.settle(nil)
			if want := (amounts{user: c.kept}); tree.kept != want {
				t.Errorf("kept %v, want %v", tree.kept, want)
			}
		})
	}
}

// A parent that ends with its children takes their account along once.
func TestTree_settle_aFamilyThatEnds(t *testing.T) {
	grand := &node{now: amounts{user: 100}, before: amounts{user: 100}}
	parent := &node{parent: grand, now: amounts{user: 10}, before: amounts{user: 10}}
	child := &node{parent: parent, now: amounts{user: 1}, before: amounts{user: 1}}
	tree := &Tree{live: map[int]*node{1: grand}}
	grand.now[user] = 110 // it waited for the parent, whom the child outlived
	tree.settle([]*node{child, parent})
	if want := (amounts{user: 1}); tree.kept != want {
		t.Errorf("kept %v, want the child's %v", tree.kept, want)
	}
}

func TestTree_Scan_bounded(t *testing.T) {
	tree, err := Open("").NewTree(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	tree.limit = 0
	if got, err := tree.Scan(); err != nil || got.Processes != 0 || got.Untracked != 1 {
		t.Errorf("got %d processes and %d untracked, %v, want 0 and 1", got.Processes, got.Untracked, err)
	}
}
