// SPDX-License-Identifier: Apache-2.0

package runnerconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// VariablesFile is the file of an environment's variables and OAuth apps in the Secret of its runner pool.
const VariablesFile = "variables.json"

const (
	// MaxVariable limits a variable's value, in bytes.
	MaxVariable = 8192
	// MaxVariables limits the values of an environment's variables together, in bytes.
	MaxVariables = 256 << 10
)

// Variables is the content of VariablesFile: what differs between environments. Both lists are sorted by name.
type Variables struct {
	Variables []Variable `json:"variables"`
	// OAuthApps are the OAuth apps. Runners of an earlier release ignore them.
	OAuthApps []OAuthApp `json:"oauth_apps,omitempty"`
}

// Variable is a value that differs between environments.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Sensitive hides the value from models.
	Sensitive bool `json:"sensitive,omitempty"`
}

// Find returns the variable with that name, or false.
func (v Variables) Find(name string) (Variable, bool) {
	at, found := slices.BinarySearchFunc(v.Variables, name, func(one Variable, name string) int { return cmp.Compare(one.Name, name) })
	if !found {
		return Variable{}, false
	}
	return v.Variables[at], true
}

// Sorted sorts variables by name. Their names must be unique.
func Sorted(variables []Variable) Variables {
	out := slices.Clone(variables)
	slices.SortFunc(out, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return Variables{Variables: out}
}

// CheckVariables returns the problem of the variables' sizes, which continues their name, and the
// name of the variable that is too long, or "" if all together are. It returns "" twice if there is
// no problem.
func CheckVariables(variables []Variable) (name, problem string) {
	total := 0
	for _, one := range variables {
		if len(one.Value) > MaxVariable {
			return one.Name, fmt.Sprintf("has a value of more than %d bytes", MaxVariable)
		}
		total += len(one.Value)
	}
	if total > MaxVariables {
		return "", fmt.Sprintf("have more than %d KiB together", MaxVariables>>10)
	}
	return "", ""
}

// ParseVariables parses the content of VariablesFile. Its errors contain no values.
func ParseVariables(data []byte) (Variables, error) {
	var v Variables
	if json.Unmarshal(data, &v) != nil {
		return Variables{}, fmt.Errorf("reading %s: it is not as the platform writes it", VariablesFile)
	}
	if err := checkOAuthApps(v.OAuthApps); err != nil {
		return Variables{}, err
	}
	for i := 1; i < len(v.Variables); i++ {
		if v.Variables[i-1].Name >= v.Variables[i].Name {
			return Variables{}, fmt.Errorf("reading %s: the variables are not sorted by name or not unique", VariablesFile)
		}
	}
	return v, nil
}
