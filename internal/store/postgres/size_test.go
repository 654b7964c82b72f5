package postgres_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/storetest"
)

func TestSize(t *testing.T) { storetest.Size(t, open) }
