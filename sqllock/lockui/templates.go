package lockui

import (
	"embed"
	"html/template"
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
		"cut":  cut,
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
