// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// zipped returns an archive with files, each `name` or `name=text`.
func zipped(t *testing.T, files ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		to, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		require.NoError(t, err)
		_, err = to.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.String()
}

// compound returns an old Office file with streams in its directory at the given sector.
func compound(sector uint32, streams ...string) string {
	data := make([]byte, 512*(int(sector)+1))
	copy(data, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
	binary.LittleEndian.PutUint16(data[26:], 3)
	binary.LittleEndian.PutUint16(data[28:], 0xfffe)
	binary.LittleEndian.PutUint16(data[30:], 9)
	binary.LittleEndian.PutUint32(data[48:], sector)
	for _, name := range append([]string{"Root Entry"}, streams...) {
		entry := make([]byte, 128)
		for i, c := range utf16.Encode([]rune(name)) {
			binary.LittleEndian.PutUint16(entry[2*i:], c)
		}
		data = append(data, entry...)
	}
	return string(data)
}

func TestFileType_Detection(t *testing.T) {
	t.Parallel()
	ooxml := "application/vnd.openxmlformats-officedocument."
	open := "application/vnd.oasis.opendocument."
	ftyp := func(brand string) string { return "\x00\x00\x00\x18ftyp" + brand + "\x00\x00\x00\x00" + brand + "mif1" }
	for name, c := range map[string]struct{ text, declared, name, want string }{
		"JPEG": {"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "", "", "image/jpeg"}, "PNG": {png, "", "", "image/png"}, "GIF": {"GIF89a\x01\x00", "", "", "image/gif"},
		"WebP": {"RIFF\x1a\x00\x00\x00WEBPVP8L", "", "", "image/webp"}, "HEIC": {ftyp("heic"), "", "", "image/heic"}, "HEIF": {ftyp("mif1"), "", "", "image/heif"},
		"PDF": {"%PDF-1.7\n%\xe2\xe3", "", "", "application/pdf"}, "RTF": {`{\rtf1\ansi hi}`, "", "", "application/rtf"},
		"Word":                  {zipped(t, "[Content_Types].xml=<Types/>", "_rels/.rels=<r/>", "word/document.xml=<w/>"), "", "", ooxml + "wordprocessingml.document"},
		"Excel":                 {zipped(t, "[Content_Types].xml=<Types/>", "_rels/.rels=<r/>", "xl/workbook.xml=<w/>"), "", "", ooxml + "spreadsheetml.sheet"},
		"PowerPoint":            {zipped(t, "[Content_Types].xml=<Types/>", "_rels/.rels=<r/>", "ppt/presentation.xml=<w/>"), "", "", ooxml + "presentationml.presentation"},
		"old Word":              {compound(0, "1Table", "WordDocument"), "", "", "application/msword"},
		"Word, further down":    {compound(900, "Data", "WordDocument"), "", "", "application/msword"},
		"old Excel":             {compound(40, "Workbook"), "", "", "application/vnd.ms-excel"},
		"older Excel":           {compound(1, "Book"), "", "", "application/vnd.ms-excel"},
		"old PowerPoint":        {compound(70, "Pictures", "PowerPoint Document"), "", "", "application/vnd.ms-powerpoint"},
		"OpenDocument text":     {zipped(t, "mimetype="+open+"text", "content.xml=<x/>"), "", "", open + "text"},
		"OpenDocument sheet":    {zipped(t, "mimetype="+open+"spreadsheet", "content.xml=<x/>"), "", "", open + "spreadsheet"},
		"OpenDocument slides":   {zipped(t, "mimetype="+open+"presentation", "content.xml=<x/>"), "", "", open + "presentation"},
		"EPUB":                  {zipped(t, "mimetype=application/epub+zip", "META-INF/container.xml=<x/>"), "", "", "application/epub+zip"},
		"plain text":            {"hello, world", "", "", "text/plain"},
		"text in UTF-16":        {"\xff\xfeh\x00i\x00", "", "", "text/plain"},
		"a script is text":      {"#!/usr/bin/env python\nprint(1)\n", "text/x-python", "a.py", "text/plain"},
		"HTML":                  {"<!DOCTYPE html><html><p>hi", "", "", "text/html"},
		"Markdown, declared":    {"# Title\n\ntext", "text/markdown; charset=utf-8", "", "text/markdown"},
		"Markdown, by its name": {"# Title\n\ntext", "application/octet-stream", "README.MD", "text/markdown"},
		"CSV":                   {"a,b\n1,2\n3,4\n", "", "", "text/csv"},
		"CSV, declared":         {"a;b", "text/csv", "", "text/csv"},
		"TSV":                   {"a\tb\n1\t2\n3\t4\n", "", "", "text/tab-separated-values"},
		"JSON":                  {`{"a":[1]}`, "", "", "application/json"},
		"GeoJSON is JSON":       {`{"type":"FeatureCollection","features":[]}`, "", "", "application/json"},
		"XML":                   {`<?xml version="1.0"?><a/>`, "", "", "application/xml"},
		"nothing":               {"", "", "", "text/plain"},

		"wrong declared type":    {png, "text/plain", "a.txt", "image/png"},
		"text declared as image": {"hello", "image/png", "a.png", "text/plain"},
		"a program":              {"MZ\x90\x00\x03\x00", "image/png", "a.png", ""},
		"ELF":                    {"\x7fELF\x02\x01\x01", "", "", ""},
		"an archive":             {zipped(t, "a.txt=hi"), ooxml + "wordprocessingml.document", "a.docx", ""},
		"gzip":                   {"\x1f\x8b\x08\x00", "", "", ""},
		"old, of another kind":   {compound(3, "Something"), "application/msword", "a.doc", ""},
		"old, incomplete":        {compound(900, "WordDocument")[:2000], "application/msword", "a.doc", ""},
		"audio":                  {"ID3\x03\x00\x00", "", "", ""},
		"bytes":                  {"\x00\x01\x02\x03", "text/plain", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			number, err := s.addFile("f", strings.NewReader(c.text))
			require.NoError(t, err)
			s.describe(number, c.name, c.declared)
			require.Equal(t, c.want, s.files[number].MIMEType)
			require.Equal(t, c.want == "", s.files[number].Reason == "unsupported_type")
			require.Len(t, s.blobs, len(c.want)/max(len(c.want), 1))
		})
	}
}
