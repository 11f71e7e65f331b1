// SPDX-License-Identifier: Apache-2.0

// Command empty is an HTTP server that responds with an empty body. It shows the base cost of a Go process.
package main

import (
	"log"
	"net/http"
	"os"
)

func main() {
	log.Fatal(http.ListenAndServe(os.Args[1], http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
}
