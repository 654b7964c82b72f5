package config

// CINotes says where a CI server's people are told what builds cost.
type CINotes struct {
	TokenFile     string   `yaml:"token_file" check:"optionalpath" doc:"File of a token that may write notes and commit statuses, and has no more rights than that. Without one nothing is written. Must not be readable by everybody."`
	PagesURL      string   `yaml:"pages_url" check:"address" doc:"Address of cimeter's own pages, such as https://cimeter.example.com, that notes link to. Without one they link to nothing."`
	MergeRequests []string `yaml:"merge_requests" check:"project" max:"500" doc:"Projects whose merge requests get one note, which is kept up to date: paths, where * is any text, such as group/*. A line when nothing changed, else a table."`
	Always        []string `yaml:"always" check:"project" max:"500" doc:"Those of them whose note has the tables also when nothing changed."`
	Statuses      []string `yaml:"statuses" check:"project" max:"500" doc:"Projects whose commits get a status of one line when a pipeline has ended: paths as above."`
}
