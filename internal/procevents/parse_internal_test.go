package procevents

import (
	"encoding/binary"
	"testing"
)

func message(what uint32, data ...uint32) []byte {
	b := make([]byte, offsetData+4*len(data))
	binary.NativeEndian.PutUint32(b[16:], connectorID)
	binary.NativeEndian.PutUint32(b[offsetWhat:], what)
	binary.NativeEndian.PutUint64(b[offsetAt:], 77)
	for i, v := range data {
		binary.NativeEndian.PutUint32(b[offsetData+4*i:], v)
	}
	return b
}

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		b    []byte
		want Event // the zero one: none is told
	}{
		{"fork of a process", message(eventFork, 10, 9, 12, 12), Event{Kind: Fork, Pid: 12, Parent: 9, At: 77}},
		{"fork of a thread", message(eventFork, 10, 9, 12, 9), Event{}},
		{"exec", message(eventExec, 12, 12), Event{Kind: Exec, Pid: 12, At: 77}},
		{"exec by a thread", message(eventExec, 13, 12), Event{Kind: Exec, Pid: 12, At: 77}},
		{"exit", message(eventExit, 12, 12, 256, 17, 10, 9), Event{Kind: Exit, Pid: 12, Parent: 9, Code: 256, At: 77}},
		{"exit of a thread", message(eventExit, 13, 12, 0, 17, 10, 9), Event{}},
		{"exit, before Linux 4.18", message(eventExit, 12, 12, 256, 17), Event{Kind: Exit, Pid: 12, Code: 256, At: 77}},
		{"a change of users", message(4, 12, 12, 0, 0), Event{}},
		{"the answer to a subscription", message(0, 0), Event{}},
		{"cut", message(eventFork, 10, 9, 12), Event{}},
		{"empty", nil, Event{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got Event
			if parse(tt.b, &got) != (tt.want != Event{}) {
				t.Fatalf("told: %+v, want %+v", got, tt.want)
			}
			if tt.want != (Event{}) && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message(eventFork, 10, 9, 12, 12))
	f.Add(message(eventExit, 12, 12, 256, 17, 10, 9))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e Event
		if parse(b, &e) && (e.Pid == 0 || e.Kind == 0) {
			t.Errorf("event without a process: %+v", e)
		}
	})
}
