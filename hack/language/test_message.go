// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"reflect"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert" //nolint:depguard // the parameters of its methods show which argument is a message
)

// testingMethods are the methods of testing.T and rapid.T whose first argument is a text.
var testingMethods = []string{"Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf", "Run"}

// ginkgoFunctions are the functions of Ginkgo whose first argument is a text.
var ginkgoFunctions = []string{
	"By", "Context", "Describe", "DescribeTable", "Entry", "FContext", "FDescribe", "FIt", "Fail", "It", "PContext", "PDescribe", "PIt",
	"ReportAfterSuite", "Skip", "Specify", "When", "XContext", "XDescribe", "XIt",
}

// gomegaMethods are the methods of Gomega whose second argument is a text: Expect(value).To(matcher, text).
var gomegaMethods = []string{"NotTo", "Should", "ShouldNot", "To", "ToNot"}

// messageIndexes has the index of the message in the arguments of each function of testify, without the test itself.
var messageIndexes = func() map[string]int {
	indexes := map[string]int{}
	for method := range reflect.TypeFor[*assert.Assertions]().Methods() {
		if !method.Type.IsVariadic() {
			continue
		}
		indexes[method.Name] = method.Type.NumIn() - 2 // without the receiver
		if strings.HasSuffix(method.Name, "f") && method.Type.In(method.Type.NumIn()-2).Kind() == reflect.String {
			indexes[method.Name]-- // the format is before its arguments
		}
	}
	for _, name := range []string{"Fail", "FailNow", "Failf", "FailNowf"} {
		indexes[name] = 0
	}
	return indexes
}()

// testMessages returns the texts that a test shows if it fails: the messages of assertions, and the names of subtests and steps.
// Expected values are no messages.
func testMessages(file *ast.File) (out []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if i := messageIndex(call); i >= 0 && i < len(call.Args) {
			if text := foldSum(call.Args[i]); countsAsText(text) {
				out = append(out, paragraphs(text)...)
			}
		}
		return true
	})
	return out
}

// messageIndex returns the index of the message in the arguments of a call, or -1.
func messageIndex(call *ast.CallExpr) int {
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		if slices.Contains(ginkgoFunctions, fn.Name) {
			return 0
		}
	case *ast.SelectorExpr:
		index, known := messageIndexes[fn.Sel.Name]
		switch owner, _ := fn.X.(*ast.Ident); {
		case known && owner != nil && (owner.Name == "require" || owner.Name == "assert"):
			return index + 1 // after the test
		case slices.Contains(testingMethods, fn.Sel.Name):
			return 0
		case slices.Contains(gomegaMethods, fn.Sel.Name):
			return 1
		case known:
			return index // of require.New(t)
		}
	}
	return -1
}
