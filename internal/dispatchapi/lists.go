// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrTooMany means that a list of a request is too long.
var ErrTooMany = errors.New("too many elements")

// Lists of requests. They are counted before memory is allocated, because an element of two bytes
// can need a hundred.
type (
	Digests    []string
	Leases     []Lease
	HeldLeases []Held
	Entries    []JournalEntry
	Appends    []RunAppend
	Agents     []Agent
	Models     []string
	Tests      []TestResult
	DayCosts   []DayCost

	Connectors   []ConnectorFile
	DriftReports []DriftReport
	DriftTools   []string
)

// UnmarshalJSON accepts at most MaxDigests, or returns ErrTooMany.
func (l *Digests) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]string)(l), MaxDigests)
}

// UnmarshalJSON accepts at most MaxLeases, or returns ErrTooMany.
func (l *Leases) UnmarshalJSON(data []byte) error { return decodeList(data, (*[]Lease)(l), MaxLeases) }

// UnmarshalJSON accepts at most MaxLeases, or returns ErrTooMany.
func (l *HeldLeases) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]Held)(l), MaxLeases)
}

// UnmarshalJSON accepts at most MaxEntries, or returns ErrTooMany.
func (l *Entries) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]JournalEntry)(l), MaxEntries)
}

// UnmarshalJSON accepts at most MaxAppends, or returns ErrTooMany.
func (l *Appends) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]RunAppend)(l), MaxAppends)
}

// UnmarshalJSON accepts at most MaxDriftReports, or returns ErrTooMany.
func (l *DriftReports) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]DriftReport)(l), MaxDriftReports)
}

// UnmarshalJSON accepts at most MaxDriftTools, or returns ErrTooMany.
func (l *DriftTools) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]string)(l), MaxDriftTools)
}

// size returns the bytes of the data of all entries.
func (l Entries) size() (n int) {
	for _, e := range l {
		n += len(e.Data)
	}
	return n
}

// UnmarshalJSON accepts at most MaxAgents, or returns ErrTooMany.
func (l *Agents) UnmarshalJSON(data []byte) error { return decodeList(data, (*[]Agent)(l), MaxAgents) }

// UnmarshalJSON accepts at most MaxAgentModels, or returns ErrTooMany.
func (l *Models) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]string)(l), MaxAgentModels)
}

// UnmarshalJSON accepts at most MaxConnectors, or returns ErrTooMany.
func (l *Connectors) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]ConnectorFile)(l), MaxConnectors)
}

// UnmarshalJSON accepts at most MaxTests, or returns ErrTooMany.
func (l *Tests) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]TestResult)(l), MaxTests)
}

// UnmarshalJSON accepts at most MaxDayCosts, or returns ErrTooMany.
func (l *DayCosts) UnmarshalJSON(data []byte) error {
	return decodeList(data, (*[]DayCost)(l), MaxDayCosts)
}

func decodeList[T any](data []byte, into *[]T, most int) error {
	if countCommas(data) >= most {
		return fmt.Errorf("a list has more than %d elements: %w", most, ErrTooMany)
	}
	return json.Unmarshal(data, into)
}

// countCommas counts the commas between the outermost elements of valid JSON.
func countCommas(data []byte) int {
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
