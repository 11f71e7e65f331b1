// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrTooMany says that a list of a request is longer than the port takes.
var ErrTooMany = errors.New("too many elements")

// Lists of requests, counted before memory is set aside for their elements: an
// element of two bytes may take a hundred.
type (
	Digests    []string
	Leases     []Lease
	HeldLeases []Held
	Entries    []JournalEntry
	Agents     []Agent
	Tests      []TestResult
	DayCosts   []DayCost

	Connectors []ConnectorFile
)

// UnmarshalJSON takes at most MaxDigests; ErrTooMany.
func (l *Digests) UnmarshalJSON(data []byte) error { return list(data, (*[]string)(l), MaxDigests) }

// UnmarshalJSON takes at most MaxLeases; ErrTooMany.
func (l *Leases) UnmarshalJSON(data []byte) error { return list(data, (*[]Lease)(l), MaxLeases) }

// UnmarshalJSON takes at most MaxLeases; ErrTooMany.
func (l *HeldLeases) UnmarshalJSON(data []byte) error {
	return list(data, (*[]Held)(l), MaxLeases)
}

// UnmarshalJSON takes at most MaxEntries; ErrTooMany.
func (l *Entries) UnmarshalJSON(data []byte) error {
	return list(data, (*[]JournalEntry)(l), MaxEntries)
}

// UnmarshalJSON takes at most MaxAgents; ErrTooMany.
func (l *Agents) UnmarshalJSON(data []byte) error { return list(data, (*[]Agent)(l), MaxAgents) }

// UnmarshalJSON takes at most MaxConnectors; ErrTooMany.
func (l *Connectors) UnmarshalJSON(data []byte) error {
	return list(data, (*[]ConnectorFile)(l), MaxConnectors)
}

// UnmarshalJSON takes at most MaxTests; ErrTooMany.
func (l *Tests) UnmarshalJSON(data []byte) error { return list(data, (*[]TestResult)(l), MaxTests) }

// UnmarshalJSON takes at most MaxDayCosts; ErrTooMany.
func (l *DayCosts) UnmarshalJSON(data []byte) error { return list(data, (*[]DayCost)(l), MaxDayCosts) }

func list[T any](data []byte, into *[]T, most int) error {
	if commas(data) >= most {
		return fmt.Errorf("a list has more than %d elements: %w", most, ErrTooMany)
	}
	return json.Unmarshal(data, into)
}

// commas counts those of valid JSON that stand between its outermost elements.
func commas(data []byte) int {
	count, depth, text := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[', c == '{':
			depth++
		case c == ']', c == '}':
			depth--
		case c == ',' && depth == 1:
			count++
		}
	}
	return count
}
