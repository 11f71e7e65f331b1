package postgres
var ClaimSQL = claimStatement
