// SPDX-License-Identifier: Apache-2.0

package runnerconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// VariablesFile is the file of an environment's variables in the Secret of its runner pool.
const VariablesFile = "variables.json"

const (
	// MaxVariable is the most bytes of a variable's value.
	MaxVariable = 8192
	// MaxVariables is the most bytes that the values of an environment's variables have together.
	MaxVariables = 256 << 10
)

// Variables is the content of VariablesFile, by name.
type Variables struct {
	Variables []Variable `json:"variables"`
}

// Variable is a value that differs between environments.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Sensitive: no model is told it.
	Sensitive bool `json:"sensitive,omitempty"`
}

// Find returns the variable of that name; false where there is none.
func (v Variables) Find(name string) (Variable, bool) {
	at, found := slices.BinarySearchFunc(v.Variables, name, func(one Variable, name string) int { return cmp.Compare(one.Name, name) })
	if !found {
		return Variable{}, false
	}
	return v.Variables[at], true
}

// Sorted are variables as Variables has them: by name, whose names are all different.
func Sorted(variables []Variable) Variables {
	out := slices.Clone(variables)
	slices.SortFunc(out, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return Variables{Variables: out}
}

// CheckVariables says what is wrong with the sizes of variables, in words that follow what they
// are called, and the name of the one that is too long, "" where it is all of them; both are ""
// where nothing is wrong.
func CheckVariables(variables []Variable) (name, problem string) {
	total := 0
	for _, one := range variables {
		if len(one.Value) > MaxVariable {
			return one.Name, fmt.Sprintf("has a value of more than the %d bytes that it may have", MaxVariable)
		}
		total += len(one.Value)
	}
	if total > MaxVariables {
		return "", fmt.Sprintf("have more than the %d KiB together that they may have", MaxVariables>>10)
	}
	return "", ""
}

// ParseVariables reads the content of VariablesFile. Errors do not show values.
func ParseVariables(data []byte) (Variables, error) {
	var v Variables
	if json.Unmarshal(data, &v) != nil {
		return Variables{}, fmt.Errorf("reading %s: it is not as the platform writes it", VariablesFile)
	}
	for i := 1; i < len(v.Variables); i++ {
		if v.Variables[i-1].Name >= v.Variables[i].Name {
			return Variables{}, fmt.Errorf("reading %s: the variables are not each there once, by name", VariablesFile)
		}
	}
	return v, nil
}
