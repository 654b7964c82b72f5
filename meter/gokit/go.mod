module github.com/cimeter/cimeter/meter/gokit

go 1.26.0

require (
	github.com/cimeter/cimeter v0.0.0
	github.com/go-kit/kit v0.13.0
)

// Both are released together.
replace github.com/cimeter/cimeter => ../..
