// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/skeema/knownhosts"
)

// parseKnownHosts goes through a file: the library reads nothing else.
func parseKnownHosts(text string) (*knownhosts.HostKeyDB, error) {
	if err := checkPatterns(text); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "known_hosts")
	if err != nil {
		return nil, fmt.Errorf("writing known_hosts: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("writing known_hosts: %w", err)
	}
	db, err := knownhosts.NewDB(file.Name())
	if err != nil {
		return nil, Remedy("known_hosts of the git Secret cannot be read; it is of the form that ssh-keyscan prints")
	}
	return db, nil
}

// checkPatterns refuses what takes the library exponentially long to match: it goes
// back for each "*".
func checkPatterns(text string) error {
	for line := range strings.Lines(text) {
		words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
		if len(words) == 0 || strings.HasPrefix(strings.TrimSpace(line), "#") { // the one place where # begins a comment
			continue
		}
		if len(words) > 1 && strings.HasPrefix(words[0], "@") { // @cert-authority, @revoked
			words = words[1:]
		}
		for pattern := range strings.SplitSeq(words[0], ",") {
			if strings.Count(pattern, "*") > 1 {
				return Remedy("known_hosts of the git Secret has the pattern %q, at most one * is taken in each; name the host", Clip(pattern, 100))
			}
		}
	}
	return nil
}
