package httpapi

import (
	"context"
	"fmt"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/recordjson"
)

// machinesOf is what a build did on each of its machines; nil: it had one, or it is not
// known.
func (a *API) machinesOf(ctx context.Context, key string) ([]*cimeter.Record, error) {
	if a.o.Query == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	parts, err := a.o.Query.Machines(ctx, key)
	if err != nil || len(parts) < 2 {
		return nil, err
	}
	return parts, nil
}

// withMachines adds the records of a build's machines to the JSON of one of them.
func withMachines(doc []byte, parts []*cimeter.Record) (_ []byte, err error) {
	doc = append(doc[:len(doc)-1], `,"machines":[`...)
	for i, r := range parts {
		if i > 0 {
			doc = append(doc, ',')
		}
		if doc, err = recordjson.Append(doc, r); err != nil {
			return nil, fmt.Errorf("encode record %s: %w", r.Key, err)
		}
	}
	return append(doc, "]}"...), nil
}
