package woodpeckerapi

import (
	"testing"

	"github.com/cimeter/cimeter/internal/ci/citest"
)

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"repo":{"id":4,"full_name":"a/b"},"pipeline":{"id":1,"number":2,"commit":{"sha":"x"},"workflows":[{"id":3,"pid":1,"name":"w","state":"success"},{"pid":1,"name":"w"}]}}`))
	f.Add([]byte(`{"repo":{},"pipeline":{}}`))
	s := newServer("https://wp.example.com")
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := s.event(b)
		citest.Sane(t, r, err)
	})
}
