package httpapi

import (
	_ "embed"
	"net/http"
)

// description is the OpenAPI 3.1 document of a server's API.
//
//go:embed openapi.json
var description []byte

// openapi is GET /api/v1/openapi.json.
func (a *API) openapi(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r.URL.RawQuery, func(string) bool { return false }); err != nil {
		return err
	}
	return writeBytes(w, r, "application/json", description)
}
