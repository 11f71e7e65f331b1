// SPDX-License-Identifier: Apache-2.0

// Package runerror declares the codes of runs that did not complete. Whatever ends a run takes its code from here.
package runerror

import "strings"

// Code is why a run did not complete, for programs. Codes never change. The zero value is the code of a completed or open run.
type Code string

// Retry says whether the same event may complete if it is sent or replayed again.
type Retry string

// Values of Retry.
const (
	// RetryHelps is for causes that pass on their own.
	RetryHelps Retry = "yes"
	// RetryAfterFix is for causes that last until a project member or the platform operator removes them.
	RetryAfterFix Retry = "after the remedy"
	// RetryFails is for causes in the event itself.
	RetryFails Retry = "no"
)

// Entry describes a code.
type Entry struct {
	Code Code
	// Meaning and Remedy are full sentences. Remedy is for project members, unless it names the platform operator.
	Meaning, Remedy string
	Retry           Retry
}

// Group is a part of the table.
type Group struct {
	Title   string
	Entries []Entry
}

// Find returns the entry of a code. Runners of another release may report codes that the table lacks.
func Find(code Code) (Entry, bool) {
	for _, group := range Table {
		for _, entry := range group.Entries {
			if entry.Code == code {
				return entry, true
			}
		}
	}
	return Entry{}, false
}

// Describe returns the list of all codes in Markdown, for descriptions of APIs.
func Describe() string {
	var text strings.Builder
	text.WriteString("Values of `error_code`; releases can add more:\n\n")
	for _, group := range Table {
		for _, entry := range group.Entries {
			text.WriteString("- `" + string(entry.Code) + "`: " + entry.Meaning + "\n")
		}
	}
	return text.String()
}
