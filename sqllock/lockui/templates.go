package lockui

import (
	"embed"
	"fmt"
	"html/template"
	"math"
	"strconv"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are by the path of a view, and those of forms by their name. No text of
// a client becomes template.HTML: html/template escapes it all.
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(template.FuncMap{
		"span": func(s any) string {
			switch s := s.(type) {
			case seconds:
				return spanText(float64(s))
			case *seconds:
				if s != nil {
					return spanText(float64(*s))
				}
			}
			return "–"
		},
		"ms":   func(s seconds) string { return durationText(float64(s)) },
		"row":  func(p page, row any) rowPage { return rowPage{p, row} },
		"plus": func(a, b int) int { return a + b },
	}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	all := make(map[string]*template.Template)
	for path, file := range map[string]string{
		"": "overview", "locks": "locks", "waits": "waits", "findings": "findings", "doctor": "doctor",
		"search": "search", "terminate": "terminate",
	} {
		all[path] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, "templates/"+file+".html"))
	}
	return all
}

// A rowPage is a row of a table, with what a part needs of the page.
type rowPage struct {
	page
	Row any
}

// countText returns a count, or a mean of counts, as a text.
func countText(n float64) string {
	return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64)
}

// durationText returns a short duration in seconds as a text, such as a round trip.
func durationText(s float64) string {
	switch {
	case s == 0:
		return "–"
	case s < 0.01:
		return strconv.FormatFloat(s*1000, 'f', 2, 64) + " ms"
	case s < 1:
		return strconv.FormatFloat(s*1000, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(s, 'f', 1, 64) + " s"
}

// spanText returns an age in seconds as a text of at most two units.
func spanText(s float64) string {
	whole := int(s)
	switch {
	case s < 10:
		return strconv.FormatFloat(s, 'f', 1, 64) + " s"
	case whole < 60:
		return strconv.Itoa(whole) + " s"
	case whole < 3600:
		return fmt.Sprintf("%d min %d s", whole/60, whole%60)
	case whole < 86400:
		return fmt.Sprintf("%d h %d min", whole/3600, whole/60%60)
	}
	return fmt.Sprintf("%d d %d h", whole/86400, whole/3600%24)
}
