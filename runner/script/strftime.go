// SPDX-License-Identifier: Apache-2.0

package script

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// errFormat is the error of a text that does not fit its format.
var errFormat = errors.New("the text does not fit the format")

// layouts are Go's layouts of the directives of strftime.
var layouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'b': "Jan", 'B': "January",
	'a': "Mon", 'A': "Monday", 'j': "002", 'I': "03", 'p': "PM", 'z': "-0700", 'Z': "MST",
}

// eachDirective calls directive for each directive of a format, and literal for the text between.
func eachDirective(format string, directive func(byte) error, literal func(string) error) error {
	for format != "" {
		text, rest, found := strings.Cut(format, "%")
		if err := literal(text); err != nil || !found {
			return err
		}
		if rest == "" {
			return errors.New("the format ends with %")
		}
		var err error
		switch c := rest[0]; {
		case c == '%':
			err = literal("%")
		case c != 'f' && layouts[c] == "":
			err = fmt.Errorf("the format has the unknown directive %q", "%"+string(rune(c)))
		default:
			err = directive(c)
		}
		if err != nil {
			return err
		}
		format = rest[1:]
	}
	return nil
}

// strftime formats a time.
func strftime(t time.Time, format string) (string, error) {
	var out strings.Builder
	literal := func(text string) error { out.WriteString(text); return nil }
	err := eachDirective(format, func(c byte) error {
		if c == 'f' {
			return literal(fmt.Sprintf("%06d", t.Nanosecond()/1000))
		}
		return literal(t.Format(layouts[c]))
	}, literal)
	return out.String(), err
}

// timeParser collects the parts of a time from a text.
type timeParser struct {
	rest                                      string
	year, month, day, hour, minute, sec, nsec int
	yearDay                                   int
	half                                      string // AM or PM
	zone                                      *time.Location
}

// strptime parses a time. Without a directive for a part, the part comes from 1970-01-01 00:00.
func strptime(text, format string, zone *time.Location) (time.Time, error) {
	p := &timeParser{rest: text, year: 1970, month: 1, day: 1, zone: zone}
	err := eachDirective(format, p.directive, p.literal)
	if err != nil || p.rest != "" {
		return time.Time{}, cmp.Or(err, errFormat)
	}
	switch {
	case p.half != "" && (p.hour < 1 || p.hour > 12):
		return time.Time{}, errFormat
	case p.half != "":
		p.hour = p.hour%12 + map[string]int{"AM": 0, "PM": 12}[p.half]
	}
	if p.yearDay > 0 {
		p.month, p.day = 1, p.yearDay
	}
	t := time.Date(p.year, time.Month(p.month), p.day, p.hour, p.minute, p.sec, p.nsec, p.zone)
	// time.Date accepts April 31 as May 1.
	if p.hour > 23 || p.minute > 59 || p.sec > 59 || t.Year() != p.year || p.yearDay == 0 && (t.Month() != time.Month(p.month) || t.Day() != p.day) {
		return time.Time{}, errFormat
	}
	return t, nil
}

func (p *timeParser) literal(text string) error {
	rest, ok := strings.CutPrefix(p.rest, text)
	if !ok {
		return errFormat
	}
	p.rest = rest
	return nil
}

func (p *timeParser) directive(c byte) error {
	switch c {
	case 'Y':
		return p.readNumber(&p.year, 4)
	case 'm':
		return p.readNumber(&p.month, 2)
	case 'd':
		return p.readNumber(&p.day, 2)
	case 'H', 'I':
		return p.readNumber(&p.hour, 2)
	case 'M':
		return p.readNumber(&p.minute, 2)
	case 'S':
		return p.readNumber(&p.sec, 2)
	case 'j':
		return p.readNumber(&p.yearDay, 3)
	case 'y':
		err := p.readNumber(&p.year, 2)
		if p.year += 2000; p.year > 2068 { // As POSIX: 69 to 99 are the 20th century.
			p.year -= 100
		}
		return err
	case 'f':
		before := len(p.rest)
		err := p.readNumber(&p.nsec, 6)
		for range 9 - (before - len(p.rest)) {
			p.nsec *= 10
		}
		return err
	}
	return p.readWord(c)
}

// number reads one to most digits.
func (p *timeParser) readNumber(into *int, most int) error {
	end := 0
	for end < len(p.rest) && end < most && '0' <= p.rest[end] && p.rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(p.rest[:end])
	if err != nil {
		return errFormat
	}
	*into, p.rest = n, p.rest[end:]
	return nil
}

func (p *timeParser) readWord(c byte) error {
	switch c {
	case 'b', 'B':
		for month := time.January; month <= time.December; month++ {
			if p.readName(month.String()) {
				p.month = int(month)
				return nil
			}
		}
	case 'a', 'A':
		for day := time.Sunday; day <= time.Saturday; day++ {
			if p.readName(day.String()) {
				return nil
			}
		}
	case 'p':
		for _, half := range []string{"AM", "PM"} {
			if p.readPrefix(half) {
				p.half = half
				return nil
			}
		}
	case 'Z':
		for _, name := range []string{"UTC", "GMT", "Z"} {
			if p.readPrefix(name) {
				p.zone = time.UTC
				return nil
			}
		}
	case 'z':
		return p.readOffset()
	}
	return errFormat
}

// name reads a name or its first three letters.
func (p *timeParser) readName(name string) bool { return p.readPrefix(name) || p.readPrefix(name[:3]) }

// prefix reads a word in any case.
func (p *timeParser) readPrefix(word string) bool {
	if len(p.rest) < len(word) || !strings.EqualFold(p.rest[:len(word)], word) {
		return false
	}
	p.rest = p.rest[len(word):]
	return true
}

// offset reads Z, +0100 or +01:00.
func (p *timeParser) readOffset() error {
	if p.readPrefix("Z") {
		p.zone = time.UTC
		return nil
	}
	for _, layout := range []string{"-07:00", "-0700"} {
		if len(p.rest) < len(layout) {
			continue
		}
		if t, err := time.Parse(layout, p.rest[:len(layout)]); err == nil {
			_, seconds := t.Zone()
			p.zone, p.rest = time.FixedZone("", seconds), p.rest[len(layout):]
			return nil
		}
	}
	return errFormat
}
