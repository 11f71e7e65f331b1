// SPDX-License-Identifier: Apache-2.0

// Package pattern compiles untrusted regular expressions in RE2 syntax and limits their compiled
// size: a{1000} has seven bytes and a thousand instructions.
package pattern

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// MaxText limits a regular expression, in bytes.
	MaxText = 1 << 10
	// MaxSize limits the compiled instructions.
	MaxSize = 1000
	// rangesEach is the number of runes of a class that count as one instruction.
	rangesEach = 64
)

// Compile compiles a regular expression and returns its number of instructions.
func Compile(text string) (compiled *regexp.Regexp, size int, err error) {
	if len(text) > MaxText {
		return nil, 0, fmt.Errorf("it has more than %d bytes", MaxText)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	if size = programSize(parsed); size > MaxSize {
		return nil, 0, fmt.Errorf("it compiles to more than %d instructions; use fewer repetitions", MaxSize)
	}
	compiled, err = regexp.Compile(text)
	return compiled, size, err
}

// programSize estimates the number of instructions without compiling. The parser limits counts, also of
// nested repetitions, to 1000.
func programSize(re *syntax.Regexp) int {
	size := 0
	for _, sub := range re.Sub {
		size += programSize(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		size = len(re.Rune)
	case syntax.OpCharClass:
		size = 1 + len(re.Rune)/rangesEach
	case syntax.OpCapture, syntax.OpStar:
		size += 2
	case syntax.OpPlus, syntax.OpQuest:
		size++
	case syntax.OpAlternate:
		size += len(re.Sub) - 1
	case syntax.OpRepeat:
		size = repeated(size, re.Min, re.Max)
	}
	return max(size, 1)
}

// repeated returns the size of a repetition: the part as often as it can occur, and a branch for
// each optional one.
func repeated(part, least, most int) int {
	if most < 0 {
		return part*max(least, 1) + 2
	}
	return part*most + most - least
}
