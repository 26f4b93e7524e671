// The pages and their pictures are a module, which has no package, so that the
// root module's zip leaves them out: it has at most 1 MiB, and they are a
// quarter of it. `make release-check` measures it.
module github.com/latchkey-go/latchkey/docs

go 1.25.0
