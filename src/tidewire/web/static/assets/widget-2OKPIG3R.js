import{R as a,S as b}from"./chunk-KZQ5YJQW.js";export{a as TidewireChat,b as define};
