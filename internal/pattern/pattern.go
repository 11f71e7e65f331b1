// SPDX-License-Identifier: Apache-2.0

// Package pattern compiles regular expressions that others wrote, in RE2's syntax, and
// bounds what they are compiled to: a{1000} are seven bytes and a thousand instructions.
package pattern

import (
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// MaxText is the most bytes of a regular expression.
	MaxText = 1 << 10
	// MaxSize is the most instructions that one is compiled to.
	MaxSize = 1000
	// rangesEach is how many runes of a class count as an instruction.
	rangesEach = 64
)

// Compile makes a regular expression of text, and says how many instructions it has.
func Compile(text string) (compiled *regexp.Regexp, size int, err error) {
	if len(text) > MaxText {
		return nil, 0, fmt.Errorf("it has more than %d bytes", MaxText)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	if size = sizeOf(parsed); size > MaxSize {
		return nil, 0, fmt.Errorf("it is compiled to more than %d instructions; repeat less", MaxSize)
	}
	compiled, err = regexp.Compile(text)
	return compiled, size, err
}

// sizeOf is about how many instructions an expression is compiled to, without compiling it.
// Counts are at most 1000, also of nested repetitions together: the parser sees to that.
func sizeOf(re *syntax.Regexp) int {
	size := 0
	for _, sub := range re.Sub {
		size += sizeOf(sub)
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

// repeated is the size of a repetition: its part as often as it may be there, and a branch
// for each that need not be.
func repeated(part, least, most int) int {
	if most < 0 {
		return part*max(least, 1) + 2
	}
	return part*most + most - least
}
