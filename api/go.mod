// The list of names is for the people who change the modules. As a module of its
// own, which has no package, it stays out of the root module's zip: see docs/go.mod.
module github.com/latchkey-go/latchkey/api

go 1.25.0
