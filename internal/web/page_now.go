package web

import "net/http"

func (p *Pages) now(w http.ResponseWriter, r *http.Request) error {
	http.Redirect(w, r, "/builds", http.StatusSeeOther)
	return nil
}
